"""More requests run at once, so each step reads more KV: ITL grows with the batch, not with a prompt."""

from collections.abc import Iterator

from infer_console.diagnosis.advice import one_more
from infer_console.diagnosis.case import Case
from infer_console.diagnosis.track import Track, median
from infer_console.state.finding import Finding
from infer_console.view.format import milliseconds

#: Now, and the time before that it is compared with.
NOW_S = 5.0
BEFORE_S, UNTIL_S = 90.0, 15.0
#: The batch and its steps grew at least so much.
RATIO = 1.5
MORE_RUNNING = 16


def batch_growth(case: Case) -> Iterator[Finding]:
    for name, replica, track in case.serving():
        if not _grew(track):
            continue
        running, was = _now_and_before(track, "running")
        if running is None or was is None or running < RATIO * was or running < was + MORE_RUNNING:
            continue
        step_s, step_was_s = _now_and_before(track, "decode_s")
        if step_s is None or step_was_s is None or step_s < RATIO * step_was_s:
            continue
        mixed = track.values("mixed", NOW_S)
        if mixed and sum(mixed) > len(mixed) / 2:
            continue
        replicas = len(case.picture.replicas)
        fewer = running * replicas / (replicas + 1)
        then_s = step_was_s + (step_s - step_was_s) * max(0.0, fewer - was) / (running - was)
        yield Finding(
            rule="batch_growth",
            replica=name,
            evidence={
                "running": running,
                "running_before": was,
                "step_s": step_s,
                "step_before_s": step_was_s,
                "itl_p50_s": replica.itl_s.p50,
                "itl_p99_s": replica.itl_s.p99,
            },
            confidence=min(1.0, (step_s / step_was_s - 1) / (running / max(was, 1.0) - 1)),
            words=f"batch growth: {running:.0f} run, {was:.0f} did a minute ago; a step takes"
            f" {milliseconds(step_s)} ms, it took {milliseconds(step_was_s)} ms",
            action=one_more(case, f"steps ~{milliseconds(then_s)} ms when the load has spread"),
        )


def _grew(track: Track) -> bool:
    """A first look that costs nothing."""
    now = track.last("running")
    before = [value for value in (track.back("running", 20), track.back("running", 60)) if value is not None]
    return now is not None and any(now >= RATIO * was and now >= was + MORE_RUNNING for was in before)


def _now_and_before(track: Track, key: str) -> tuple[float | None, float | None]:
    return median(track.values(key, NOW_S)), median(track.values(key, BEFORE_S, UNTIL_S))
