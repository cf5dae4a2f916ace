"""Run by the transformers environment: generates what stdin asks for, and prints one JSON line a repeat.

stdin: {"model", "threads", "dtype", "mode": "static" | "continuous",
"repeats": [[{"prompt": [ids], "output_tokens"}…]…]}
stdout: {"seconds", "output_tokens"} a repeat.

``static``: one batch in lockstep, prompts padded on the left, until the longest answer is done.
``continuous``: all requests handed to the continuous batching manager at once, each with its own number of
tokens.
"""

import json
import os
import sys
import time
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

CONTINUOUS_TIMEOUT_S = 900.0
PAGE_TOKENS = 16
BATCH_TOKENS = 512


def main() -> None:
    asked = json.load(sys.stdin)
    torch.set_num_threads(asked["threads"])
    static = asked["mode"] == "static"
    model = AutoModelForCausalLM.from_pretrained(
        asked["model"],
        dtype=getattr(torch, asked["dtype"]),
        attn_implementation="sdpa" if static else "paged|sdpa",
    ).eval()
    generate = generate_static if static else generate_continuous
    first = asked["repeats"][0]
    warm_up = [{"prompt": each["prompt"][::-1], "output_tokens": 4} for each in first]
    with torch.inference_mode():
        for requests in [warm_up, *asked["repeats"]]:
            began_s = time.perf_counter()
            tokens = generate(model, requests)
            line = {"seconds": time.perf_counter() - began_s, "output_tokens": tokens}
            if requests is not warm_up:
                print(json.dumps(line), flush=True)


def generate_static(model: Any, requests: list[dict[str, Any]]) -> list[int]:
    longest = max(len(each["prompt"]) for each in requests)
    steps = max(each["output_tokens"] for each in requests)
    pads = [longest - len(each["prompt"]) for each in requests]
    padding = model.config.pad_token_id or 0
    ids = torch.tensor([[padding] * pad + each["prompt"] for pad, each in zip(pads, requests, strict=True)])
    mask = torch.tensor([[0] * pad + [1] * (longest - pad) for pad in pads])
    out = model.generate(
        ids, attention_mask=mask, max_new_tokens=steps, min_new_tokens=steps, do_sample=False
    )
    made = out.shape[1] - longest
    return [min(made, each["output_tokens"]) for each in requests]


def generate_continuous(model: Any, requests: list[dict[str, Any]]) -> list[int]:
    from transformers import ContinuousBatchingConfig

    longest = max(len(each["prompt"]) + each["output_tokens"] for each in requests)
    config = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=model.config.pad_token_id)
    batching = ContinuousBatchingConfig(
        page_size=PAGE_TOKENS,
        num_blocks=len(requests) * (longest // PAGE_TOKENS + 2),
        max_batch_tokens=BATCH_TOKENS,
        max_requests_per_batch=len(requests),
    )
    made: dict[str, int] = {}
    with model.continuous_batching_context_manager(
        generation_config=config, continuous_batching_config=batching, timeout=30
    ) as manager:
        names = [
            manager.add_request(each["prompt"], max_new_tokens=each["output_tokens"]) for each in requests
        ]
        deadline_s = time.monotonic() + CONTINUOUS_TIMEOUT_S
        while len(made) < len(requests):
            done = manager.get_result(timeout=1)
            if done is not None and done.is_finished():
                if done.error is not None:
                    raise SystemExit(f"a request failed: {done.error}")
                made[done.request_id] = len(done.generated_tokens)
            elif done is None and (not manager.is_running() or time.monotonic() > deadline_s):
                raise SystemExit(f"{len(made)} of {len(requests)} requests ended")
    return [made[name] for name in names]


if __name__ == "__main__":
    main()
