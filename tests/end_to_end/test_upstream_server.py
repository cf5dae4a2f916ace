"""``serve`` before servers of somebody else, as its own process: a client's streams outlive one of them."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from infer_engine.model.tokenizer import Tokenizer
from support.eventually import eventually
from support.fake_upstream import FakeUpstream, answer_to
from support.server import EngineServer, serving
from support.tiny_model import write_tiny_gguf

T = TypeVar("T")
TOKENS = 30
STREAMS = 8


@contextmanager
def loop_of_its_own() -> Generator[Callable[[Coroutine[Any, Any, T]], T]]:
    """Runs what it is given on another thread's loop, for as long as that takes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda what: asyncio.run_coroutine_threadsafe(what, loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_file(write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf"))


def stream(server: EngineServer, number: int) -> tuple[str, bool]:
    """The text of a completion, and whether it came to its end."""
    body = {"model": "tiny", "prompt": f"in the ring {number}", "max_tokens": TOKENS, "stream": True}
    with server.gateway() as http:
        lines = http.post("/v1/completions", json=body | {"temperature": 0}).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return "".join(each["choices"][0]["text"] for each in events), "data: [DONE]" in lines


def test_streams_of_clients_outlive_a_server_that_is_killed(tokenizer: Tokenizer, tmp_path: Path) -> None:
    def cut(text: str) -> list[int]:
        return tokenizer.encode(text, allow_special=True)

    fakes = [FakeUpstream("vllm", cut, free_tokens=6), FakeUpstream("llamacpp", cut, free_tokens=6, slots=8)]

    async def begin() -> None:
        for fake in fakes:
            fake.gate.clear()
            await fake.start()

    async def kill(fake: FakeUpstream) -> None:
        fake.kill()

    async def open_gate(fake: FakeUpstream) -> None:
        fake.gate.set()

    with loop_of_its_own() as run:
        run(begin())
        urls = [each.url for each in fakes]
        with serving(replicas=2, upstreams=urls, replica={"kv_blocks": None}) as server:
            with ThreadPoolExecutor(STREAMS) as threads:
                streams = [threads.submit(stream, server, number) for number in range(STREAMS)]
                eventually(lambda: sum(row.running or 0 for row in server.status().replicas) == STREAMS)
                eventually(lambda: sum(each.counted for each in fakes) >= 6 * STREAMS + 2)
                assert fakes[0].running
                run(kill(fakes[0]))
                run(open_gate(fakes[1]))
                answers = [each.result(60) for each in streams]
            for number, (text, whole) in enumerate(answers):
                prompt = tokenizer.completion_prompt(f"in the ring {number}")
                assert whole
                assert text == tokenizer.decode(answer_to(prompt, TOKENS))
            fakes[1].why, fakes[1].failures = "top_k must be at most 3", [(422, {})]
            with server.gateway() as http:
                refused = http.post("/v1/completions", json={"model": "tiny", "prompt": "x", "max_tokens": 2})
            assert refused.status_code == 400
            assert refused.json()["error"]["code"] == "upstream_refused"
            assert refused.json()["error"]["message"].endswith(": top_k must be at most 3")
            with server.control() as control:
                said = control.post("/control/v1/replicas/r1:restart", json={})
                assert (said.status_code, said.json()["code"]) == (409, "not_ours")
                blocks = control.get("/control/v1/replicas/r1/blocks")
                assert (blocks.status_code, blocks.json()["code"]) == (409, "blocks_unknown")
                assert blocks.json()["title"] == "The replica never tells its blocks."
                assert "r1 is a server of others" in blocks.json()["detail"]
            replicas = server.status().replicas
            assert [each.upstream for each in replicas] == ["vLLM", "llama.cpp"]
        run(kill(fakes[1]))
