"""``infer-console serve --upstream`` before real servers, as an operator starts it, and clients that stream
through it with the official client."""

import json
import os
import select
import subprocess
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
from infer_console.cli import codes
from support.cli import Run
from support.eventually import eventually
from support.peer import LONG_S, Peer
from support.processes import children, wait_gone
from support.server import short_directory

#: Servers that compute on one core beside everything else are slow, not stuck.
STALL_S = 40.0
#: Those of a request fit into a slot, and it can be stopped in its midst.
TOKENS = 48


@dataclass
class Operated:
    """``upstreams`` are its replicas, in their order."""

    url: str
    connect: str
    upstreams: Sequence[Peer]
    run: Run | None = None

    def told(self, *words: str) -> Any:
        """What a verb tells as JSON."""
        assert self.run is not None
        result = self.run(*words, "--connect", self.connect, "--json")
        assert result.code == codes.OK, (words, result)
        return result.document

    def do(self, *words: str) -> None:
        assert self.run is not None
        result = self.run(*words, "--connect", self.connect)
        assert result.code == codes.OK, (words, result)

    def replica(self, id: str) -> dict[str, Any]:
        return next(row for row in self.told("status")["replicas"] if row["id"] == id)

    def rows(self) -> list[dict[str, Any]]:
        """Requests that have not ended."""
        return [row for row in self.told("requests")["requests"] if row["state"] != "finished"]

    def wait_ready(self) -> None:
        eventually(lambda: self.told("status")["totals"]["ready"] == len(self.upstreams), LONG_S)


@contextmanager
def operating(console: Path, *upstreams: Peer) -> Generator[Operated]:
    """All are ready when it is yielded; afterwards nothing of it is left, and it has logged no error but
    that a server was lost."""
    with short_directory() as directory:
        connect = f"unix://{directory}/c.sock"
        command = [str(console), "serve", "--control", connect, "--listen", "127.0.0.1:0"]
        command += ["--state-dir", str(directory / "state"), "--upstream-stall", f"{STALL_S:.0f}"]
        for each in upstreams:
            command += ["--upstream", each.connect]
        log = directory / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, env=os.environ
            )
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], LONG_S)[0], log.read_text()
            line = process.stdout.readline()
            assert line, log.read_text()
            yield Operated(json.loads(line)["gateway"], connect, upstreams)
        finally:
            family = [process.pid, *children(process.pid)]
            process.terminate()
            process.wait(60.0)
            assert process.stdout is not None
            process.stdout.close()
            assert wait_gone(family) == []
        errors = [each for each in log.read_text().splitlines() if '"level": "ERROR"' in each]
        assert [each for each in errors if " died: " not in each] == []  # a server that was lost is one


@dataclass
class Streamed:
    """One answer as its client has it."""

    about: str
    text: str = ""
    finish_reason: str | None = None
    tokens: int | None = None
    error: openai.OpenAIError | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def ask(self, url: str) -> None:
        try:
            with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=LONG_S) as client:
                stream = client.chat.completions.create(
                    model=client.models.list().data[0].id,
                    messages=[{"role": "user", "content": f"Tell a long story about {self.about}. 🦄"}],
                    max_tokens=TOKENS,
                    temperature=0.0,
                    stream=True,
                    stream_options={"include_usage": True},
                    extra_body={"ignore_eos": True},
                )
                for chunk in stream:
                    if chunk.usage is not None:
                        self.tokens = chunk.usage.completion_tokens
                    for choice in chunk.choices:
                        self.text += choice.delta.content or ""
                        self.finish_reason = choice.finish_reason or self.finish_reason
        except openai.OpenAIError as error:
            self.error = error
        finally:
            self.ended.set()

    @property
    def whole(self) -> bool:
        """To its last token."""
        return (self.error, self.finish_reason, self.tokens) == (None, "length", TOKENS)


@contextmanager
def streams(gateway: Operated, *about: str) -> Generator[list[Streamed]]:
    """They have ended when this ends."""
    asked = [Streamed(each) for each in about]
    threads = [threading.Thread(target=each.ask, args=(gateway.url,)) for each in asked]
    for thread in threads:
        thread.start()
    try:
        yield asked
    finally:
        for thread in threads:
            thread.join(LONG_S)
    assert not any(thread.is_alive() for thread in threads)
