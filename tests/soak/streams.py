"""Streams of a real server that are read to their end over and over, and compared with undisturbed ones."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import httpx2

#: Of the two best tokens' logits at the first difference, in fp32: below it another batch may flip them.
TIE_GAP = 1e-3


@dataclass(frozen=True)
class Ask:
    """Greedy, or (``seed``) drawn."""

    prompt: str
    max_tokens: int
    seed: int | None

    def body(self) -> dict[str, Any]:
        drawn: dict[str, Any] = {"temperature": 0.8, "seed": self.seed, "presence_penalty": 0.3}
        return {
            "model": "tiny",
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "stream": True,
            "logprobs": 2,
            **({"temperature": 0} if self.seed is None else drawn),
        }


@dataclass
class Heard:
    """What one stream said: its tokens, the gap between the two best at each, and how it ended."""

    tokens: list[str] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    finish: str | None = None
    done: bool = False
    error: str | None = None

    @property
    def is_whole(self) -> bool:
        return self.done and self.error is None and self.finish == "length"


@dataclass
class Client:
    """Asks the same again and again until it is told to stop."""

    ask: Ask
    now: Heard = field(default_factory=Heard)
    before: list[Heard] = field(default_factory=list)
    heard_tokens: int = 0

    async def once(self, http: httpx2.AsyncClient) -> Heard:
        heard = self.now = Heard()
        try:
            async with http.stream("POST", "/v1/completions", json=self.ask.body()) as response:
                if response.status_code != 200:
                    heard.error = f"{response.status_code}: {(await response.aread())[:200]!r}"
                    return heard
                async for line in response.aiter_lines():
                    self._take(heard, line)
        except httpx2.HTTPError as error:
            heard.error = repr(error)
        return heard

    async def over_and_over(self, http: httpx2.AsyncClient, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.before.append(await self.once(http))
            if not self.before[-1].is_whole:
                return

    def _take(self, heard: Heard, line: str) -> None:
        if not line.startswith("data: "):
            return
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            heard.done = True
            return
        document = json.loads(data)
        if "error" in document:
            heard.error = str(document["error"])
            return
        for choice in document["choices"]:
            heard.finish = choice["finish_reason"] or heard.finish
            logprobs = choice.get("logprobs") or {}
            new = logprobs.get("tokens") or []
            heard.tokens += new
            self.heard_tokens += len(new)
            for top in logprobs.get("top_logprobs") or []:
                best = sorted(top.values(), reverse=True)
                heard.gaps.append(best[0] - best[1] if len(best) > 1 else 0.0)


@dataclass
class Verdict:
    streams: int = 0
    #: Why streams are broken or differ; empty when all is well.
    faults: list[str] = field(default_factory=list)
    #: Greedy streams that differ from the undisturbed one only behind a tie.
    ties: int = 0

    def judge(self, ask: Ask, heard: Heard, expected: Heard) -> None:
        self.streams += 1
        if not heard.is_whole or len(heard.tokens) != ask.max_tokens:
            self.faults.append(f"broken after {len(heard.tokens)} tokens: {heard.error or heard.finish}")
            return
        pairs = enumerate(zip(heard.tokens, expected.tokens, strict=True))
        at = next((at for at, (mine, theirs) in pairs if mine != theirs), None)
        if at is None:
            return
        if ask.seed is None and expected.gaps[at] < TIE_GAP:
            self.ties += 1
        else:
            self.faults.append(f"differs at token {at}, gap {expected.gaps[at]:.2g}, seed {ask.seed}")


def asks(count: int, max_tokens: int) -> list[Ask]:
    """Different prompts of different lengths; every other one is drawn."""
    return [
        Ask(
            "the ring on the hill " * (1 + number % 5) + str(number),
            max_tokens,
            number if number % 2 else None,
        )
        for number in range(count)
    ]
