"""Who loses their place decides what the alarm says: batch is there to, interactive is not."""

from pathlib import Path

from infer_console.diagnosis.alarms import find_alarms
from infer_console.state.picture import Picture
from infer_engine.protocol import Alarm
from support.incident_scripts import Sender
from support.incidents import Ward
from support.simulated_fleet import SimulatedBench, run


class Seen:
    """The alarms about preemption, look by look."""

    def __init__(self) -> None:
        self.alarms: list[Alarm] = []

    def __call__(self, picture: Picture) -> None:
        self.alarms += [alarm for alarm in find_alarms(picture) if alarm.rule == "preempting"]


def play(directory: Path, *, batch: int, interactive: int) -> tuple[Seen, Ward]:
    """So many of each, whose answers outgrow the pool."""
    seen = Seen()

    async def drill(bench: SimulatedBench) -> Ward:
        ward = Ward(bench, each_picture=seen)
        sender = Sender(ward)
        sender.send(300, 3_000, batch, tier="batch")
        await ward.seconds(2)
        sender.send(300, 3_000, interactive)
        await ward.seconds(20)
        ward.close()
        return ward

    return seen, run(drill, directory, simulate="70b@4×h100", replicas=1, kv_blocks=600)


def test_only_batch_gave_way(tmp_path: Path) -> None:
    seen, ward = play(tmp_path, batch=14, interactive=2)
    assert {event.tier for event in ward.bench.events("preempt")} == {"batch"}
    assert seen.alarms
    assert {alarm.severity for alarm in seen.alarms} == {"notice"}
    assert all("no interactive request lost its place" in alarm.text for alarm in seen.alarms)
    assert {alarm.action for alarm in seen.alarms} <= {None, "raise batch headroom (H)"}
    assert ward.rules() == set(), ward.story()


def test_interactive_lost_its_place(tmp_path: Path) -> None:
    seen, ward = play(tmp_path, batch=0, interactive=22)
    assert {event.tier for event in ward.bench.events("preempt")} == {"interactive"}
    assert {(alarm.severity, alarm.action) for alarm in seen.alarms} == {("warning", "raise headroom (H)")}
