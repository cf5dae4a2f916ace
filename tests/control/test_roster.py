"""Continuous batching seen from outside: what one step finished, the next one refills; the block map always
adds up."""

import asyncio
from itertools import pairwise

from support.asking import complete
from support.server import EngineServer
from support.watching import Mirror, watching

MAX_RUNNING = 6
LENGTHS = [16, 400, 32, 350, 64, 300, 24, 250, 48, 200, 96, 160, 20, 120, 40, 80]


async def test_what_a_step_finished_the_next_refills(server: EngineServer) -> None:
    async with watching(server) as watch:
        asking = asyncio.gather(*(complete(server, length) for length in LENGTHS))
        mirror = await watch.until(lambda mirror: finished(mirror) == len(LENGTHS))
        answers = [response.json() for response in await asking]
    assert [answer["usage"]["completion_tokens"] for answer in answers] == LENGTHS
    assert {answer["choices"][0]["finish_reason"] for answer in answers} == {"length"}
    steps = mirror.steps
    assert [step.step for step in steps] == list(range(steps[0].step, steps[0].step + len(steps)))
    assert max(step.running for step in steps) == MAX_RUNNING
    refilled = 0
    for step, following in pairwise(steps):
        if step.finished and step.waiting:
            assert len(following.admitted) >= min(len(step.finished), step.waiting), (step, following)
            refilled += 1
    # 16 requests and 6 places: 10 of them come in as others leave.
    assert refilled >= 5
    assert sum(len(step.admitted) for step in steps) == len(LENGTHS)
    assert watch.frames >= 3


def finished(mirror: Mirror) -> int:
    return sum(len(step.finished) for step in mirror.steps)
