"""Servers that others run and that are not there: alarms, doctor, screens and command line say the same."""

import dataclasses

import pytest
from infer_console.cli.doctor import print_findings
from infer_console.cli.tables import print_status
from infer_console.diagnosis.doctor import Doctor
from infer_console.diagnosis.judge import Judge
from infer_console.state.picture import Link, Picture, ReplicaPicture
from infer_console.view.doctor_screen import doctor_screen
from infer_console.view.look import Look, Size
from infer_console.view.row import plain
from infer_console.view.waiting import waiting_section
from infer_engine.protocol import Alarm, Fleet, Replica, Status, Totals

WHY = "127.0.0.1:18962: ConnectError: All connection attempts failed"
WORDS = (
    "llama.cpp at 127.0.0.1:18962 is not reachable for 2m10s: ConnectError: All connection attempts failed"
)


def server(name: str, *, gone: bool) -> Replica:
    return Replica(
        id=name,
        state="starting" if gone else "ready",
        launcher="upstream",
        upstream="llama.cpp",
        device="127.0.0.1:18962",
        was_ready=True,
        unready_s=130.0 if gone else None,
        error=WHY if gone else None,
    )


def picture(*replicas: Replica, at: float = 0.0) -> Picture:
    ready = sum(each.state == "ready" for each in replicas)
    return Picture(
        at=at,
        link=Link("unix:///x", "live", age_s=0.1),
        fleet=Fleet(name="f", model="m"),
        totals=Totals(replicas=len(replicas), ready=ready, waiting=1, waiting_reasons={"loading": 1}),
        replicas={each.id: ReplicaPicture(each) for each in replicas},
    )


def test_the_doctor_finds_what_the_alarm_says() -> None:
    judged = Judge().judged(picture(server("r0", gone=False), server("r1", gone=True)), 0.0)
    (finding,) = judged.findings
    assert (finding.rule, finding.replica, finding.since_s) == ("replica_unreachable", "r1", 130.0)
    assert finding.words.startswith(WORDS)
    assert "look at that server" in finding.words
    assert "requests go to the 1 that is ready" in finding.words
    assert finding.evidence["error"] == WHY
    # One line for it, not two.
    assert [(alarm.rule, alarm.replica) for alarm in judged.alarms] == [("replica_unreachable", "r1")]
    assert judged.alarms[0].text == WORDS


def test_all_gone_is_found_for_each_of_them() -> None:
    found = Doctor().look(picture(server("r0", gone=True), server("r1", gone=True)))
    assert [finding.id for finding in found] == ["replica_unreachable/r0", "replica_unreachable/r1"]
    assert "requests are held until one is" in found[0].words


def test_who_waits_is_not_told_that_something_loads() -> None:
    rows = [plain(row) for row in waiting_section(picture(server("r0", gone=True)), 60, 4)]
    assert any("no upstream answers: start them" in row for row in rows)
    assert not any("loaded" in row for row in rows)


def test_the_doctor_says_what_the_alarm_says_where_no_rule_finds_a_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alarm = Alarm(rule="drained", severity="warning", replica="r0", text="drained", action="undrain (U)")
    shown = dataclasses.replace(picture(server("r0", gone=False)), alarms=(alarm,))
    for size in (Size(80, 24), Size(120, 36)):
        rows = [plain(row) for row in doctor_screen(shown, Look(), size, 0.0)]
        assert any("r0: drained → undrain (U)" in row for row in rows)
        assert not any("nothing found" in row for row in rows)
    print_findings((), (alarm,), simulated=False)
    told = capsys.readouterr().out
    assert "warning: r0 drained  -> undrain (U)" in told
    assert "nothing found" not in told
    print_findings((), (), simulated=False)
    assert capsys.readouterr().out == "nothing found\n"


def test_status_names_the_reason_and_no_percentage_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    from infer_console.cli.look import with_alarms

    gone = [server("r0", gone=False), server("r1", gone=True)]
    status = Status(fleet=Fleet(name="f", model="m"), replicas=gone, totals=Totals(replicas=2, ready=1))
    print_status(with_alarms(status))
    told = capsys.readouterr().out
    assert f"critical: r1 {WORDS}" in told
    assert "KV –  " in told
    assert "–%" not in told
