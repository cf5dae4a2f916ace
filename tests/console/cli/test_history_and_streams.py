"""What the panes show as JSON: the half hour, tokens as they come, and alarms with their causes."""

import re
from typing import Any

import pytest
from infer_console.cli.history import figure
from infer_console.cli.look import with_alarms
from infer_console.diagnosis.judge import Judge
from infer_console.past.told_before import judged_before
from infer_engine.protocol import History, Status
from msgspec import convert
from support.cli import Run
from support.eventually import eventually
from support.incident import RECORDING, messages, replayed


def test_the_history_is_a_document_and_a_table(run: Run) -> None:
    result = run("history", "--json", "--last", "10m", "--step", "10s")
    assert (result.code, result.err) == (0, "")
    found = convert(result.document, History)
    assert {"kv", "running", "waiting", "tokens_per_s", "ttft_p99", "itl_p99"} <= found.fleet.keys()
    assert set(found.replicas) == {"r0", "r1"}
    table = run("history", "--replica", "r1")
    assert table.code == 0
    assert "ttft_p99" in table.out
    assert re.search(r"^kv +<?[0-9]+ %", table.out, re.MULTILINE), table.out
    assert run("history", "--replica", "r9").code == 1
    assert run("history", "--last", "2h").code == 2


def test_streams_without_anybody_running(run: Run) -> None:
    result = run("streams", "--json", "--duration", "0.1s")
    assert result.code == 0
    assert result.document == {"version": 1, "simulated": False, "content": False, "streams": []}
    assert "no request runs" in run("streams").out


def streamed(run: Run, *words: str) -> dict[str, Any]:
    """Of requests that come one after the other: the first of which there was something to hear."""
    found: list[dict[str, Any]] = []

    def heard() -> bool:
        told = run("streams", "--json", "--duration", "0.5s", *words).document
        found[:] = [told]
        return any(stream["tokens"] for stream in told["streams"])

    eventually(heard)
    return found[0]


def test_text_is_told_only_where_it_is_asked_for(run: Run, client: None) -> None:
    hidden = streamed(run)
    assert not hidden["content"]
    assert all(stream["text"] is None for stream in hidden["streams"])
    told = streamed(run, "--content")
    assert told["content"]
    assert any(stream["text"] for stream in told["streams"])
    unknown = run("streams", "no-such-request", "--json")
    assert (unknown.code, unknown.out) == (1, "")


def test_who_may_not_read_gets_no_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infer_console.cli.streams.READERS", ())
    result = run("streams", "--json", "--content", "--duration", "0.1s")
    assert not result.document["content"]
    assert "not for this role" in result.err


def test_alarms_of_the_status_have_their_causes() -> None:
    at = messages()[-1][1].at
    picture = replayed().picture(at)
    assert picture is not None
    assert picture.fleet is not None
    assert picture.totals is not None
    statuses = [each.status for each in picture.replicas.values()]
    status = Status(fleet=picture.fleet, replicas=statuses, totals=picture.totals)
    before = judged_before(RECORDING.read_bytes(), "", shift_s=0.0, offset_s=0.0, go_on=lambda: True)
    alone = with_alarms(status)
    assert all(alarm.cause is None for alarm in alone.alarms)
    assert isinstance(before, Judge)
    told = before.judged(picture, at)
    assert {alarm.rule for alarm in alone.alarms} <= {alarm.rule for alarm in told.alarms}
    caused = [alarm for alarm in told.alarms if alarm.cause is not None]
    assert caused
    assert {alarm.cause for alarm in caused} <= {finding.rule for finding in told.findings}


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("kv", 0.06242, "6 %"),
        ("itl_p95", 0.1862, "186 ms"),
        ("ttft_p99", 1.234, "1.2 s"),
        ("queue_wait_p99", 0.0, "0 s"),
        ("tokens_per_s", 61.3, "61 tok/s"),
        ("waiting", 0.2, ".2"),
        ("running", 12.0, "12"),
        ("new_key", 0.12345, "0.1235"),
        ("kv", None, "–"),
    ],
)
def test_figures_have_their_units(key: str, value: float | None, shown: str) -> None:
    assert figure(key, value) == shown
