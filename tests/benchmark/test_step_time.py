"""The measured loop really steps, tells and observes."""

from infer_engine.benchmark.setup import Setup
from infer_engine.benchmark.step_time import EncodingLink, NoRunner, loaded, measure
from infer_engine.replica.step_loop import StepLoop


def test_every_turn_steps_and_is_reported_and_some_are_looked_at() -> None:
    scheduler = loaded(8, 20)
    assert (len(scheduler.running), len(scheduler.waiting)) == (8, 20)
    before = scheduler.counters.steps
    link, moments = EncodingLink(hz=4.0), iter(range(10_000))
    loop = StepLoop(
        incarnation=1,
        scheduler=scheduler,
        runner=NoRunner(),
        link=link,
        clock=lambda: next(moments) / 100,
    )
    for _ in range(50):
        loop.turn()
    assert scheduler.counters.steps == before + 50
    assert 1 < link.observations < 50
    assert link.bytes > 50 * 100


def test_growth_is_told_beside_the_times() -> None:
    said: list[str] = []
    results = measure(Setup(repeats=1, shrink=100, say=said.append))
    assert [each.measure for each in results if each.against is not None] == [
        "step time, unwatched, 256 running, from 100 to 10000 waiting",
        "step time, unwatched, 100 waiting, from 16 to 256 running",
        "step time, watched at 4 Hz, 256 running, from 100 to 10000 waiting",
        "step time, watched at 4 Hz, 100 waiting, from 16 to 256 running",
    ]
    assert all(each.value is not None and each.value > 0 for each in results)
    assert len(said) == 8
