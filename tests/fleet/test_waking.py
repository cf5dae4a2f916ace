"""Readers are told a few at a time, all of them, in order, and others get their turn between."""

import asyncio

from infer_engine.fleet.generation import Generation, GenerationSpec
from infer_engine.fleet.waking import AT_ONCE, Waker
from infer_engine.model.sampling import Sampling


async def test_between_many_readers_others_get_their_turn() -> None:
    spec = GenerationSpec(prompt=(1,), max_tokens=9, sampling=Sampling(), stop_token_ids=())
    generations = [Generation(id=str(number), spec=spec, arrived_s=0.0) for number in range(4 * AT_ONCE)]
    told: list[int] = []

    async def read(number: int) -> None:
        await generations[number].beyond(0, 10)
        told.append(number)

    readers = [asyncio.create_task(read(number)) for number in range(len(generations))]
    await asyncio.sleep(0)
    waker = Waker()
    waker.wake(generations[:AT_ONCE])
    for generation in generations:
        generation.append(1, 0.0)
    waker.wake(generations[AT_ONCE:-1])
    waker.wake(generations[-1:])
    most_between, before = 0, 0
    while len(told) < len(generations):
        await asyncio.sleep(0)
        most_between, before = max(most_between, len(told) - before), len(told)
    assert told == list(range(len(generations)))
    assert most_between <= 2 * AT_ONCE
    await asyncio.gather(*readers)
