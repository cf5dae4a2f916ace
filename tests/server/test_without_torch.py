"""A gateway in front of servers of others runs where the engine's heavy libraries are not installed."""

import asyncio
import json
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from infer_console import connect
from infer_console.cli import codes, main
from infer_engine.loaded_model import load_model
from infer_engine.settings import ReplicaSettings, ServerSettings
from support.eventually import eventually
from support.fake_upstream import FakeUpstream
from support.server import short_directory
from support.tiny_tokenizers import QWEN, write_tokenizer

#: As where they are not installed: to import one is an error.
PROGRAM = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numba", "gguf", "pynvml", "triton"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from infer_engine.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def completion(gateway: str) -> httpx2.Response:
    with httpx2.Client(base_url=gateway, timeout=60) as client:
        eventually(lambda: client.get("/readyz").status_code == 200)
        must = {"structured_outputs": {"choice": ["a", "b"]}}
        return client.post("/v1/completions", json={"model": "m", "prompt": "hi", "max_tokens": 5} | must)


async def test_a_gateway_in_front_of_others_needs_no_torch(tmp_path: Path) -> None:
    """The tokenizer alone is here, in a directory as Hugging Face has it."""
    model = tmp_path / "m"
    model.mkdir()
    write_tokenizer(model, QWEN)
    shape = {"vocab_size": len(QWEN.vocabulary()) + 10, "max_position_embeddings": 512}
    (model / "config.json").write_text(json.dumps(shape))
    settings = ServerSettings(upstreams=("vllm+http://a",), replica=ReplicaSettings(model=str(model)))
    tokenizer = (await load_model(settings)).tokenizer
    fake = FakeUpstream("vllm", lambda text: tokenizer.encode(text, allow_special=True))
    await fake.start()
    try:
        with short_directory() as directory, ExitStack() as stack:
            given = {
                "control": f"unix://{directory}/c.sock",
                "listen": "127.0.0.1:0",
                "upstreams": [fake.url],
                "state_dir": str(directory / "state"),
                "replica": {"model": str(model)},
            }
            server = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, "serve", "--settings", json.dumps(given), "--lifeline"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            stack.callback(lambda: server.kill() if server.returncode is None else None)
            assert server.stdout is not None
            line = await asyncio.wait_for(server.stdout.readline(), 60)
            answer = line and await asyncio.to_thread(completion, json.loads(line)["gateway"])
            assert server.stdin is not None
            server.stdin.close()  # the end of its lifeline ends it
            _, said = await asyncio.wait_for(server.communicate(), 60)
            assert isinstance(answer, httpx2.Response), said.decode()
            assert answer.status_code == 200, answer.text
            assert (server.returncode, b"ModuleNotFoundError" in said) == (0, False), said.decode()
    finally:
        fake.kill()


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("--upstream", "vllm+http://a:1"), "upstream"),
        (("--simulate", "llama-70b@4xh100"), "upstream"),
        (("--upstream", "vllm+http://a:1", "--own-replicas", "1"), "engine"),
        ((), "engine"),
    ],
)
def test_what_is_not_installed_is_named(
    words: tuple[str, ...], extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connect, "engine_installed", lambda: False)
    monkeypatch.setattr(connect, "gateway_installed", lambda: False)
    assert main(["serve", *words]) == codes.ERROR
    assert f"pip install 'infer-console[{extra}]'" in capsys.readouterr().err


def test_all_that_the_gateway_takes_is_in_the_engine_too() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(extras["upstream"]) <= set(extras["engine"])
