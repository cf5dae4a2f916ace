"""A streaming client for any OpenAI-compatible server: the same for ours and for every peer.

Each request asks for an exact number of tokens (``ignore_eos``), sends its prompt as token ids, and is timed
frame by frame. A server that answers with another number of tokens is not measured but reported.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import httpx2

from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.workload import Ask

CONNECT_S = 10.0

T = TypeVar("T")


@dataclass(slots=True)
class Answer:
    """Moments are seconds of ``time.perf_counter``. ``frames_s`` are those of frames that carried text."""

    ask: Ask
    sent_s: float
    frames_s: list[float] = field(default_factory=list[float])
    ended_s: float = 0.0
    prompt_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def ttft_s(self) -> float:
        """From sending the request to its first text."""
        return self.frames_s[0] - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        """Between one piece of text and the next: ITL where a server sends every token by itself."""
        return [after - before for before, after in pairwise(self.frames_s)]


@dataclass(frozen=True, slots=True)
class Load:
    answers: list[Answer]

    @property
    def useful_tokens_per_s(self) -> float:
        """Tokens that were asked for, over the time from the first request to the last answer's end."""
        began_s = min(each.sent_s for each in self.answers)
        ended_s = max(each.ended_s for each in self.answers)
        return sum(each.ask.output_tokens for each in self.answers) / (ended_s - began_s)

    @property
    def ttfts_s(self) -> list[float]:
        return [each.ttft_s for each in self.answers]

    @property
    def gaps_s(self) -> list[float]:
        return [gap for each in self.answers for gap in each.gaps_s]


class Client:
    """One server. ``base_url`` without ``/v1``; ``model`` by the name that the server has for it."""

    def __init__(self, base_url: str, model: str, *, timeout_s: float = 600.0) -> None:
        self.model = model
        self._http = httpx2.AsyncClient(
            base_url=base_url,
            trust_env=False,
            timeout=httpx2.Timeout(timeout_s, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(self, ask: Ask, answer: Answer | None = None) -> Answer:
        """Stream one answer to its end; BenchError when it is not what was asked for. ``answer`` is filled as
        it comes, for those who watch."""
        answer = answer or Answer(ask, 0.0)
        answer.sent_s = time.perf_counter()
        try:
            async with self._http.stream("POST", "/v1/completions", json=self._body(ask)) as response:
                if response.status_code != 200:
                    text = (await response.aread())[:300].decode(errors="replace")
                    raise BenchError(f"the server answered {response.status_code}: {text}")
                async for line in response.aiter_lines():
                    read_line(line, answer, time.perf_counter())
        except httpx2.HTTPError as error:
            raise BenchError(f"the stream broke: {error!r}") from error
        answer.ended_s = time.perf_counter()
        check(answer)
        return answer

    async def load(self, asks: Sequence[Ask], timeout_s: float) -> Load:
        """All requests, each at its arrival and over a connection of its own."""
        began_s = time.perf_counter()

        async def one(ask: Ask) -> Answer:
            await asyncio.sleep(max(0.0, began_s + ask.arrival_s - time.perf_counter()))
            return await self.ask(ask)

        async with at_most(timeout_s, f"{len(asks)} requests"):
            return Load(await together([one(ask) for ask in asks]))

    def _body(self, ask: Ask) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": list(ask.prompt),
            "max_tokens": ask.output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all; the first error ends the others and comes out as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


@asynccontextmanager
async def at_most(timeout_s: float, what: str) -> AsyncGenerator[None]:
    """BenchError when the block takes longer."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise BenchError(f"{what} did not end within {timeout_s:.0f} s") from error


def read_line(line: str, answer: Answer, now_s: float) -> None:
    """One line of the stream; BenchError for what is none."""
    if not line.startswith("data:"):
        if line and not line.startswith(":"):
            raise BenchError(f"not a server-sent event: {line[:200]!r}")
        return
    data = line[5:].strip()
    if data == "[DONE]":
        return
    try:
        frame: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise BenchError(f"a frame is not JSON: {data[:200]!r}") from error
    if "error" in frame:
        raise BenchError(f"the server says: {str(frame['error'])[:300]}")
    if any(choice.get("text") for choice in frame.get("choices") or ()):
        answer.frames_s.append(now_s)
    usage = frame.get("usage")
    if usage:
        answer.prompt_tokens = usage.get("prompt_tokens")
        answer.output_tokens = usage.get("completion_tokens")


def check(answer: Answer) -> None:
    """BenchError unless the answer has exactly the tokens that were asked for."""
    asked = answer.ask
    if answer.output_tokens != asked.output_tokens:
        raise BenchError(
            f"{asked.output_tokens} tokens were asked for, the server counts {answer.output_tokens}: "
            "figures would not be comparable"
        )
    if answer.prompt_tokens is not None and answer.prompt_tokens != len(asked.prompt):
        raise BenchError(
            f"a prompt of {len(asked.prompt)} tokens was sent, the server counts {answer.prompt_tokens}"
        )
    if not answer.frames_s:
        raise BenchError("an answer without text")
