"""What the fleet tells of its replicas' prefix caches. Blocks hold 4 tokens, all prompts begin alike."""

from infer_engine.fleet.inbox import EVICT_EVENT_PERIOD_S
from infer_engine.protocol import Drain
from support.fleets import finished, running_fleet, until


async def test_the_hit_ratio_is_unknown_first_and_then_counts_tokens_of_first_admissions() -> None:
    async with running_fleet(replicas=1, prefix_cache=True) as bench:
        assert bench.fleet.replica("r0").prefix_hit_ratio is None
        await finished(bench.submit(13, 1))
        assert bench.fleet.replica("r0").prefix_hit_ratio == 0
        await finished(bench.submit(13, 1))
        assert bench.fleet.replica("r0").prefix_hit_ratio == 12 / 26
        kv = bench.fleet.replica("r0").kv
        assert (kv.used, kv.cached, kv.free, kv.total) == (0, 3, 13, 16)


async def test_evictions_become_one_event_a_second_with_their_sum() -> None:
    async with running_fleet(replicas=1, prefix_cache=True) as bench:
        for _ in range(4):
            await finished(bench.submit(4, 56))
        evicted = bench.fleet.measures.of["r0"].evicted_blocks
        assert evicted > 20
        bench.ahead_s += EVICT_EVENT_PERIOD_S
        await until(
            lambda: sum(event.blocks or 0 for event in bench.events("cache_evict")) == evicted,
            "an event of the rest",
        )
        assert len(bench.events("cache_evict")) < evicted
        assert {event.replica for event in bench.events("cache_evict")} == {"r0"}


async def test_a_drain_does_not_wait_for_cached_blocks_which_are_there_again_after_it() -> None:
    async with running_fleet(replicas=2, prefix_cache=True) as bench:
        fleet = bench.fleet
        await finished(*[bench.submit(13, 3) for _ in range(4)])
        fleet.draining.drain("r0", Drain())
        await until(lambda: fleet.replica("r0").state == "drained")
        kv = fleet.replica("r0").kv
        assert (kv.used, kv.cached, kv.free, kv.total) == (0, 3, 13, 16)
        fleet.draining.undrain("r0")
        fleet.draining.drain("r1", Drain())
        hits = fleet.measures.of["r0"].prefix_hit_tokens
        again = bench.submit(13, 3)
        await finished(again)
        assert again.replica == "r0"
        assert fleet.measures.of["r0"].prefix_hit_tokens - hits == 12
