"""Every verb against a real engine server: documents, tables, exit codes."""

import re
from pathlib import Path
from typing import Any

import pytest
from infer_engine.protocol import Blocks, Events, Operations, Requests, Status
from msgspec import convert
from support.cli import Run
from support.eventually import eventually
from support.server import EngineServer


def test_status_is_the_document_that_is_promised(run: Run) -> None:
    result = run("status", "--json")
    assert (result.code, result.err) == (0, "")
    document = result.document
    assert document["version"] == 1
    assert set(document) == {"version", "fleet", "replicas", "totals", "alarms"}
    assert {"name", "model", "simulated"} <= set(document["fleet"])
    promised = {
        "id",
        "state",
        "health",
        "step_age_s",
        "running",
        "waiting",
        "queue_wait_s",
        "kv",
        "tokens_per_s",
    }
    promised |= {"ttft_s", "itl_s", "preemptions", "prefix_hit_ratio"}
    assert [each["id"] for each in document["replicas"]] == ["r0", "r1"]
    assert all(promised <= set(each) for each in document["replicas"])
    kv = document["replicas"][0]["kv"]
    assert {"block_size", "total", "used", "cached", "free", "admit_limit", "batch_limit"} <= set(kv)
    assert kv["free"] + kv["cached"] + kv["used"] == kv["total"]
    convert(document, Status)


def test_tables_are_plain_text_with_a_line_per_replica(run: Run) -> None:
    status, replicas = run("status"), run("replicas")
    assert (status.code, replicas.code) == (0, 0)
    assert "2 of 2 ready" in status.out
    lines = replicas.out.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", "r0", "r1"]
    assert lines[0].split()[1] == "STATE"
    assert "\x1b" not in status.out + replicas.out


def test_the_server_can_be_named_before_or_after_the_verb(
    run: Run, engine: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INFER_CONSOLE_CONNECT")
    assert run("--connect", engine.control_url, "replicas", "--json").code == 0
    assert run("replicas", "--json", "--connect", engine.control_url).code == 0
    both = run("--connect", engine.control_url, "replicas", "--connect", engine.control_url)
    assert (both.code, both.out) == (2, "")


def test_wait_ready_returns_when_it_is_and_times_out_when_it_is_not(run: Run) -> None:
    assert run("wait", "--ready", "--timeout", "30s").code == 0
    late = run("--connect", "unix:///nonexistent/c.sock", "wait", "--ready", "--timeout", "0")
    assert (late.code, late.out) == (6, "")
    assert "No such file" in late.err
    assert run("wait").code == 2
    assert run("wait", "--ready", "--timeout", "soon").code == 2


def test_requests_and_blocks_show_who_runs_and_what_they_hold(run: Run, client: None) -> None:
    def running() -> list[Any]:
        return run("requests", "--json", "--state", "running").document["requests"]

    row = eventually(running)[0]
    promised = {"id", "tenant", "tier", "replica", "state", "phase", "prompt_tokens", "generated_tokens"}
    promised |= {"kv_blocks", "age_s", "queue_wait_s", "ttft_s", "waiting_reason", "behind", "synthetic"}
    assert promised <= set(row)
    convert(run("requests", "--json").document, Requests)
    assert "REPLICA" in run("requests").out

    document = run("blocks", row["replica"], "--json").document
    blocks = convert(document, Blocks)
    assert set(document) == {"version", "simulated", "replica", "block_size", "total", "blocks"}
    assert sum(each.count for each in blocks.blocks) == blocks.total
    table = run("blocks", row["replica"])
    assert table.code == 0
    assert "BLOCKS" in table.out


def test_cancel_ends_a_request_and_an_unknown_one_is_an_error(run: Run, client: None) -> None:
    def to_cancel() -> str | None:
        """One that whoever left before has not ended already, though it is listed."""
        for row in run("requests", "--json", "--state", "running").document["requests"]:
            plan = run("cancel", row["id"], "--dry-run")
            assert plan.code == 0
            if re.search(r"\d+ blocks? (is|are) free again", plan.out):
                return row["id"]
        return None

    done = run("cancel", eventually(to_cancel), "--json", "--reason", "test")
    assert done.code == 0
    assert done.document["operation"]["phase"] == "succeeded"
    assert done.document["operation"]["reason"] == "test"
    gone = run("cancel", "no-such-request")
    assert (gone.code, gone.out) == (1, "")
    assert "[unknown_request]" in gone.err


def test_a_condition_that_the_server_does_not_take_is_told_before_what_is_missing(run: Run) -> None:
    wrong = run("cancel", "--where", "foo=1")
    assert (wrong.code, wrong.out) == (2, "")
    assert "there is no field foo; allowed are id, tenant, tier" in wrong.err
    assert "--expect" not in wrong.err
    missing = run("cancel", "--where", "tenant=nobody")
    assert (missing.code, missing.out) == (2, "")
    assert "--where needs --expect N" in missing.err


def test_what_is_refused_beyond_is_in_the_help(run: Run) -> None:
    said = " ".join(run("inject", "--help").out.split())
    assert "like 30s or 5m; 1s to 10m" in said
    assert "requests a second (0.01 to 500)" in said


def test_drain_waits_until_drained_and_undrain_brings_it_back(
    run: Run, engine: EngineServer, client: None
) -> None:
    plan = run("drain", "r0", "--dry-run")
    assert plan.code == 0
    assert "no new requests reach r0 (mode " in plan.out
    assert engine.status().totals.ready == 2

    drained = run("drain", "r0", "--mode", "cancel", "--json")
    assert drained.code == 0
    assert drained.document["operation"]["phase"] == "succeeded"
    states = {each["id"]: each["state"] for each in run("replicas", "--json").document["replicas"]}
    assert states["r0"] == "drained"
    assert "drained" in [each["rule"] for each in run("status", "--json").document["alarms"]]

    last = run("drain", "r1")
    assert (last.code, last.out) == (5, "")
    assert "[would_break_min_ready]" in last.err

    assert run("undrain", "r0").code == 0
    assert run("wait", "--ready").code == 0


def test_drain_without_waiting_returns_at_once(run: Run, client: None) -> None:
    eventually(lambda: run("requests", "--json", "--state", "running").document["requests"])
    begun = run("drain", "r0", "--no-wait", "--deadline", "none", "--json")
    assert begun.code == 0
    assert begun.document["operation"]["kind"] == "drain"
    assert run("undrain", "r0").code == 0


def test_modes_and_values_that_do_not_exist_are_usage_errors(run: Run) -> None:
    for words, says in (
        (
            ("drain", "r0", "--mode", "nicely"),
            "allowed is auto or migrate or wait or cancel",
        ),
        (("drain", "r0", "--deadline", "2h"), "from 0s to 1h"),
        (("headroom", "101%"), "0% to 100%"),
        (("headroom", "-5"), "-5"),
        (("headroom", "1.5b"), "a whole number of blocks"),
        (("headroom", "10%", "--tier", "gold"), "interactive or batch"),
        (("inject", "flood"), "chat or long-context or long-answer or shared-prefix or burst or batch-"),
        (("inject", "chat", "--rate", "501"), "from 0.01 to 500"),
        (("inject", "chat", "--duration", "1h"), "from 1s to 10m"),
        (("inject",), "needs a PROFILE"),
        (("inject", "chat", "--stop"), "--stop takes no PROFILE"),
        (("requests", "--state", "bored"), "bored"),
        (("events", "--limit", "0"), "from 1 to 10000"),
        (("frobnicate",), "frobnicate"),
        (("--connect", "vllm://host", "status"), "together are watched only"),
    ):
        result = run(*words)
        assert (result.code, result.out) == (2, ""), words
        assert says in result.err, words


def test_headroom_is_shown_and_moved_in_percent_and_in_blocks(run: Run) -> None:
    shown = run("headroom", "--json").document["replicas"]
    assert [(each["id"], each["total"], each["admit_limit"], each["headroom"]) for each in shown] == [
        ("r0", 128, 115, 13),
        ("r1", 128, 115, 13),
    ]
    plan = run("headroom", "50%", "--dry-run")
    assert "admitted up to 64 of 128 blocks" in plan.out
    assert run("headroom", "50%", "--replica", "r1").code == 0
    assert run("headroom", "20b", "--tier", "batch").code == 0
    after = run("headroom", "--json").document["replicas"]
    assert [(each["admit_limit"], each["batch_limit"]) for each in after] == [(115, 108), (64, 108)]
    assert run("headroom", "10", "--json").document["operation"]["phase"] == "succeeded"
    table = run("headroom", "--replica", "r1")
    assert table.out.split()[-9:] == ["r1", "128", "0", "115", "13", "10", "108", "20", "16"]
    assert run("headroom", "45b", "--tier", "batch").code == 0
    assert run("headroom", "--replica", "r7").code == 1
    assert run("headroom", "10%", "--replica", "r7").code == 1


def test_test_traffic_starts_and_stops(run: Run) -> None:
    plan = run("inject", "chat", "--rate", "5", "--duration", "10s", "--dry-run")
    assert plan.code == 0
    assert "about 50 chat requests" in plan.out
    assert run("inject", "chat", "--rate", "20", "--duration", "30s").code == 0
    eventually(lambda: run("status", "--json").document["fleet"]["traffic"]["sent"])
    assert run("inject", "chat").code == 5
    assert run("inject", "--stop").code == 0
    eventually(lambda: not run("status", "--json").document["fleet"]["traffic"]["running"])


def test_a_trace_is_read_and_sent(run: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens,tier\n0.2,30,2,batch\n0,20,3,\n")
    plan = run("inject", "--trace", str(trace), "--dry-run")
    assert plan.code == 0
    assert "about 2 trace requests over 0.2 s" in plan.out
    assert run("inject", "trace", "--trace", str(trace), "--seed", "3", "--json").code == 0
    eventually(lambda: run("status", "--json").document["fleet"]["traffic"]["finished"] == 2)
    for wrong in (
        ("inject", "trace"),
        ("inject", "chat", "--trace", str(trace)),
        ("inject", "--trace", str(trace), "--rate", "2"),
        ("inject", "--trace", str(tmp_path / "none")),
        ("inject", "chat", "--rate", "2", "--concurrency", "2"),
        ("inject", "chat", "--concurrency", "1.5"),
    ):
        assert run(*wrong).code == 2, wrong


def test_events_and_operations_tell_what_happened(run: Run) -> None:
    run("undrain", "r0")
    events = convert(run("events", "--json").document, Events)
    assert events.events[-1].kind == "operation"
    assert len(run("events", "--json", "--limit", "1").document["events"]) == 1
    operations = convert(run("operations", "--json").document, Operations)
    assert operations.operations[0].kind == "undrain"
    assert operations.operations[0].id in run("operations").out
    assert "undrain" in run("events").out


def test_read_only_refuses_to_act_and_still_looks(run: Run, engine: EngineServer) -> None:
    denied = run("--read-only", "drain", "r0")
    assert (denied.code, denied.out) == (4, "")
    assert run("--read-only", "drain", "r0", "--dry-run").code == 0
    assert run("--read-only", "status").code == 0
    assert engine.status().totals.ready == 2


def test_an_unreachable_server_is_exit_code_3(run: Run) -> None:
    for words in (("status", "--json"), ("drain", "r0"), ("requests",), ("inject", "chat")):
        result = run("--connect", "unix:///nonexistent/c.sock", *words)
        assert (result.code, result.out) == (3, "")
        assert "No such file" in result.err


def test_the_gateway_is_recognised(run: Run, engine: EngineServer) -> None:
    result = run("--connect", engine.gateway_url, "status")
    assert result.code == 1
    assert "That is the gateway" in result.err
    assert "connect to the engine server's control socket" in result.err
    assert result.err.count("\n") == 1


def test_read_only_is_accepted_before_and_after_the_verb(run: Run) -> None:
    for words in (("--read-only", "undrain", "r0"), ("undrain", "r0", "--read-only")):
        result = run(*words)
        assert (result.code, result.err) == (
            4,
            "infer-console: read-only, as --read-only says: nothing was changed\n",
        )
    assert run("status", "--read-only").code == 0


@pytest.mark.parametrize("words", [("headroom", "-5%"), ("headroom", "-3b"), ("headroom", "--", "-5%")])
def test_a_negative_headroom_is_refused_in_words(run: Run, words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.code == 2
    assert f"headroom: {words[-1]!r} was given, allowed is a percentage" in result.err


def test_stopping_traffic_is_called_what_it_is(run: Run) -> None:
    result = run("inject", "--stop")
    assert result.code == 0
    assert " inject-stop fleet succeeded: no test traffic was running" in result.out


def test_the_batch_mark_is_shown_where_it_takes_effect(run: Run, engine: EngineServer) -> None:
    before = engine.status().replicas[0].kv
    assert before.total is not None
    assert before.admit_limit is not None
    try:
        assert run("headroom", "30b", "--tier", "batch", "--replica", "r0").code == 0
        assert run("headroom", "40b", "--replica", "r0").code == 0
        cells = run("headroom", "--replica", "r0").out.splitlines()[-1].split()
        assert cells[3] == cells[6] == str(before.total - 40)
    finally:
        assert run("headroom", f"{before.total - before.admit_limit}b", "--replica", "r0").code == 0
        assert run("headroom", "45b", "--tier", "batch", "--replica", "r0").code == 0
