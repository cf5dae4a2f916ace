"""What our gateway adds to a server that stands behind it: TTFT and ITL through it, over those of asking the
server directly, in turns in one run.

python bench/upstream_overhead.py DIRECT_URL GATEWAY_URL --model NAME [--direct-model NAME] [--requests N]
    [--server WORDS] [--out FILE]

Both are asked with the same chat prompts through ``/v1/chat/completions``, one at a time, greedy. The server
must be idle otherwise. Prints one JSON object: the machine, medians in seconds, their difference and ratio.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from infer_engine.benchmark.machine import describe

TOKENS = 48
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Took:
    ttft_s: float
    itl_s: float


def ask(http: httpx2.Client, url: str, model: str, number: int) -> Took:
    """One stream: when its first text came, and the mean time between the pieces after it."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": f"Tell me a long story about the number {number}."}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
    }
    began_s = time.perf_counter()
    moments: list[float] = []
    with http.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            raise SystemExit(f"{url} answers {response.status_code}: {response.read()[:200]!r}")
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            choices = json.loads(line[6:]).get("choices") or [{}]
            if choices[0].get("delta", {}).get("content"):
                moments.append(time.perf_counter())
    if len(moments) < 2:
        raise SystemExit(f"{url} sent {len(moments)} pieces of text: nothing to measure")
    return Took(moments[0] - began_s, (moments[-1] - moments[0]) / (len(moments) - 1))


def compared(name: str, direct: list[float], through: list[float]) -> dict[str, Any]:
    one, other = statistics.median(direct), statistics.median(through)
    return {
        "measure": name,
        "direct_s": round(one, 6),
        "through_s": round(other, 6),
        "added_s": round(other - one, 6),
        "ratio": round(other / one, 4),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="what our gateway adds to a server behind it")
    parser.add_argument("direct")
    parser.add_argument("gateway")
    parser.add_argument("--model", required=True, help="what the gateway calls the model")
    parser.add_argument("--direct-model", default="", help="what the server calls it")
    parser.add_argument("--requests", type=int, default=12)
    parser.add_argument("--server", default="", help="what it is, to be kept with the numbers")
    parser.add_argument("--out", type=Path, help="where the object is kept too")
    options = parser.parse_args()
    sides: dict[str, list[Took]] = {"direct": [], "gateway": []}
    # A connection each: servers that close idle ones just when they are used again are not what is measured.
    fresh = httpx2.Limits(max_keepalive_connections=0)
    with httpx2.Client(timeout=TIMEOUT_S, trust_env=False, limits=fresh) as http:
        for number in range(-1, options.requests):
            # In turns, and who is first changes: what the machine does meanwhile falls on both. Prompts that
            # one side has asked are in the server's cache for the other: each side has its own.
            for side in ("direct", "gateway") if number % 2 else ("gateway", "direct"):
                url = options.direct if side == "direct" else options.gateway
                model = options.direct_model if side == "direct" else options.model
                took = ask(http, url.rstrip("/"), model, 2 * number + (side == "direct"))
                if number >= 0:  # the first of each warms up
                    sides[side].append(took)
    results = [
        compared(
            "ttft", [each.ttft_s for each in sides["direct"]], [each.ttft_s for each in sides["gateway"]]
        ),
        compared("itl", [each.itl_s for each in sides["direct"]], [each.itl_s for each in sides["gateway"]]),
    ]
    document = {
        "version": 1,
        "at": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": describe(),
        "server": options.server,
        "requests": options.requests,
        "tokens": TOKENS,
        "results": results,
    }
    told = json.dumps(document, indent=1)
    print(told)
    if options.out is not None:
        options.out.write_text(told + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
