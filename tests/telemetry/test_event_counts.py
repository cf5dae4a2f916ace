"""Counters out of the fleet's events."""

from infer_engine.protocol import Event
from infer_engine.telemetry.event_counts import EventCounts


def test_a_request_that_waits_for_a_replica_has_moved_once_it_goes_on() -> None:
    counts = EventCounts("m")
    for number, to in enumerate((None, "r0")):
        counts.happened(
            Event(
                seq=number, at=0.0, kind="move", replica="r0", to_replica=to, reason="replica_lost", tokens=9
            )
        )
    shown = {metric.name: [sample.value for sample in metric.samples] for metric in counts.moves()}
    assert shown == {"infer_moves": [1], "infer_move_recompute_tokens": [9]}
