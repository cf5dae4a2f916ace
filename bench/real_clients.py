"""Clients as they come, against the gateway with the default model and API keys: ``openai`` in any version,
and ``aiperf`` where it is installed.

``python bench/real_clients.py [--openai PYTHON]… [--aiperf PROGRAM]``: each PYTHON has an ``openai`` of its
own, without any it is the one beside this package. What does not come out as it should ends with an error.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from infer_engine.benchmark.engine_server import EngineServer, engine_server
from infer_engine.benchmark.setup import Setup
from infer_engine.gateway.new_key import make_key

#: It starts a dozen processes and a tokenizer in most of them: minutes on a small machine.
AIPERF_TIMEOUT_S = 900
AIPERF_REQUESTS = 12

#: Run by each interpreter; ``openai`` is all that it needs.
CHECK = """
import asyncio, sys, openai
url, key, model = sys.argv[1:]
client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
question = {"role": "user", "content": "What is the capital of France?"}
ask = dict(model=model, messages=[question], temperature=0)

assert [each.id for each in client.models.list()] == [model]
assert client.models.retrieve(model).id == model
raw = client.chat.completions.with_raw_response.create(max_tokens=24, **ask)
whole = raw.parse()
assert "Paris" in whole.choices[0].message.content, whole
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
assert raw.headers["x-request-id"] in whole.id
options = {"include_usage": True}
chunks = list(client.chat.completions.create(max_tokens=24, stream=True, stream_options=options, **ask))
text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
assert text == whole.choices[0].message.content, text
assert chunks[-1].usage == whole.usage and not chunks[-1].choices
assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
several = client.completions.create(model=model, prompt="One, two,", max_tokens=4, n=2, seed=1, logprobs=2)
assert len(several.choices) == 2 and len(several.choices[0].logprobs.tokens) > 0

def fails(kind, status, code, client=client, **fields):
    try:
        client.chat.completions.create(**{**ask, **fields})
    except kind as error:
        assert (error.status_code, error.code) == (status, code), error
    else:
        raise AssertionError(f"no {kind}")

fails(openai.NotFoundError, 404, "model_not_found", model="other")
fails(openai.BadRequestError, 400, "invalid_value", temperature=9)
fails(openai.BadRequestError, 400, "context_length_exceeded", max_tokens=8192)
fails(openai.AuthenticationError, 401, "invalid_api_key", client=client.with_options(api_key="wrong"))
fails(openai.PermissionDeniedError, 403, "tenant_mismatch", extra_headers={"x-infer-tenant": "other"})

async def leave():
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key=key, max_retries=0) as many:
        stream = await many.chat.completions.create(stream=True, max_tokens=500, **ask)
        async for _ in stream:
            break
        await stream.close()
        answers = [many.chat.completions.create(max_tokens=8, **ask) for _ in range(8)]
        assert len({a.choices[0].message.content for a in await asyncio.gather(*answers)}) == 1

asyncio.run(leave())
print("openai", openai.__version__, "ok")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Clients as they come, against the gateway.")
    parser.add_argument("--openai", action="append", metavar="PYTHON", help="an interpreter with openai")
    parser.add_argument("--aiperf", metavar="PROGRAM", help="the aiperf to run")
    parser.add_argument("--tokenizer", metavar="DIR", help="for aiperf: a Hugging Face tokenizer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        keys = Path(directory) / "keys.toml"
        key = make_key(keys, "clients", "bench")
        with engine_server(Setup(), server={"api_keys": str(keys)}, key=key) as server:
            for python in options.openai or [sys.executable]:
                _check([python, "-c", CHECK, server.base_url, key, server.model])
            if options.aiperf:
                _aiperf(options.aiperf, options.tokenizer, server, key, Path(directory))
    return 0


def _aiperf(program: str, tokenizer: str | None, server: EngineServer, key: str, directory: Path) -> None:
    command = [program, "profile", "--model", server.model, "--url", server.base_url]
    command += ["--endpoint-type", "chat", "--streaming", "--api-key", key]
    command += ["--request-count", str(AIPERF_REQUESTS), "--concurrency", "4", "--isl", "40", "--osl", "16"]
    command += ["--artifact-dir", str(directory / "aiperf"), "--ui", "none"]
    command += ["--tokenizer", tokenizer] if tokenizer else []
    _check(command, AIPERF_TIMEOUT_S)
    exported = json.loads((directory / "aiperf" / "profile_export_aiperf.json").read_text())
    told = {
        name: exported[name]["avg"]
        for name in ("request_count", "time_to_first_token", "output_sequence_length")
    }
    assert told["request_count"] == AIPERF_REQUESTS, told
    print("aiperf", exported.get("aiperf_version", ""), "ok", json.dumps(told))


def _check(command: list[str], timeout_s: float = 240) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, check=True, timeout=timeout_s, env=environment)


if __name__ == "__main__":
    sys.exit(main())
