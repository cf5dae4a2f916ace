"""Clients that keep a server busy: each asks again as soon as it was answered."""

import asyncio
import time
from dataclasses import dataclass, field
from statistics import fmean

from infer_engine.benchmark.client import Answer, Client
from infer_engine.benchmark.workload import Ask, text
from peers.agreement import Seen
from peers.servers import MODEL

#: More than the four that a small peer runs at once.
CLIENTS = 6
PROMPT_TOKENS, OUTPUT_TOKENS = (40, 120), (12, 28)


@dataclass
class Clients:
    """What they saw, by the clock's second. ``work`` is one load for one server."""

    answers: list[Answer] = field(default_factory=list[Answer])
    #: The clock's second at ``perf_counter`` 0.
    epoch: float = field(default_factory=lambda: time.time() - time.perf_counter())

    async def work(self, url: str) -> None:
        """Until cancelled."""
        async with Client(url, MODEL) as client, asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._one(client, number))

    async def _one(self, client: Client, number: int) -> None:
        for turn in range(10_000):
            ask = an_ask(number * 10_007 + turn)
            answer = Answer(ask, 0.0)
            self.answers.append(answer)
            await client.ask(ask, answer)

    def tokens_per_s(self, began_at: float, ended_at: float) -> float:
        """A frame may carry several tokens, or one that is not text yet: each of an answer that has ended
        stands for its share of what the server says the answer had."""
        tokens = 0.0
        for each in self.answers:
            share = each.output_tokens / len(each.frames_s) if each.output_tokens and each.frames_s else 1.0
            tokens += share * sum(began_at <= at + self.epoch < ended_at for at in each.frames_s)
        return tokens / (ended_at - began_at)

    def seen(self, began_at: float, ended_at: float) -> Seen:
        """What came, or ended, between these two seconds of the clock."""

        def within(at: float) -> bool:
            return began_at <= at + self.epoch < ended_at

        told = [each for each in self.answers if each.frames_s]
        return Seen(
            tokens_per_s=self.tokens_per_s(began_at, ended_at),
            ttft_s=[each.ttft_s for each in told if within(each.frames_s[0])],
            gaps_s=[
                gap
                for each in told
                for gap, at in zip(each.gaps_s, each.frames_s[1:], strict=True)
                if within(at)
            ],
            mean_gaps_s=[fmean(each.gaps_s) for each in told if each.ended_s and within(each.ended_s)],
        )


def an_ask(number: int) -> Ask:
    """Lengths spread evenly, and by a fixed rule: the same in every run."""
    spread = (number * 0.618034) % 1.0
    low, high = PROMPT_TOKENS
    least, most = OUTPUT_TOKENS
    return Ask(
        text(number * 59, low + int((high - low) * spread)),
        least + int((most - least) * (spread * 7 % 1.0)),
    )
