"""The console on a real vLLM and a real llama.cpp server: what it recognises, tells, records, survives."""

from pathlib import Path

import pytest
from infer_console.cli import codes
from infer_console.state.picture import Picture
from infer_engine.benchmark.statistics import percentile
from infer_engine.model.store import resolve
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.settings import DEFAULT_MODEL
from support.cli import Run
from support.eventually import eventually
from support.peer import LONG_S, Peer, busy, live, watching
from support.terminal import Terminal

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1800)]

both = pytest.mark.parametrize("peer", ["llamacpp", "vllm"], indirect=True)
#: A small peer runs so many at once, and six clients ask.
FIT = 4


@both
@pytest.mark.parametrize("scheme", ["own", "auto"])
def test_it_is_recognised(peer: Peer, scheme: str, run: Run) -> None:
    url = peer.connect if scheme == "own" else f"auto+{peer.url}"
    told = run("--connect", url, "status", "--json")
    assert told.code == codes.OK, told.err
    fleet, (row,) = told.document["fleet"], told.document["replicas"]
    assert fleet["version"].startswith(f"{peer.product} ")
    assert "smollm2" in fleet["model"]
    assert fleet["context_length"] == 512
    assert (row["id"], row["state"], row["foreign"]) == ("e0", "ready", peer.product)
    # Neither is told as 0: it does nothing.
    assert (row["running"], row["waiting"]) == (0, 0)
    assert row["kv"]["total"] == {"vllm": 47, "llamacpp": FIT * 512}[peer.name]
    assert run("--connect", url, "wait", "--ready", "--timeout", "60s").code == codes.OK


@both
def test_a_sentence_is_cut_as_ours_cuts_it(peer: Peer, run: Run) -> None:
    ours = Tokenizer.from_file(resolve(DEFAULT_MODEL))
    text = "The incomprehensible Übermut of 漢字 😀: \n"
    words = ("plan", "--model", "smollm2-135m-instruct", "--sentence", text, "--connect", peer.connect)
    told = run(*words, "--json")
    assert told.code == codes.OK, told.err
    tokens = told.document["sentence"]["tokens"]
    assert [each["id"] for each in tokens] == ours.encode(text)
    spelled = b"".join(ours.token_bytes[each["id"]] for each in tokens)
    assert spelled == text.encode()
    assert [each["text"] for each in tokens] == [
        ours.token_bytes[each["id"]].decode("utf-8", "backslashreplace") for each in tokens
    ]


@both
def test_what_is_told_under_load_is_so(peer: Peer) -> None:
    with watching(peer.connect) as collector, busy(peer) as clients:
        live(collector)

        def full() -> Picture | None:
            totals = collector.picture.totals
            is_full = totals and totals.running == FIT and (totals.waiting or 0) >= 1
            return collector.picture if is_full and totals and totals.kv_used_ratio else None

        picture = eventually(full, LONG_S)
        assert picture.totals is not None
        assert picture.totals.waiting in (1, 2)
        assert picture.totals.kv_used_ratio is not None
        assert 0 < picture.totals.kv_used_ratio <= 1
        eventually(lambda: collector.picture.totals and collector.picture.totals.tokens_per_s, LONG_S)
        if peer.name == "llamacpp":  # it tells neither
            assert picture.totals.ttft_s.p50 is None
            assert picture.totals.itl_s.p50 is None
            return
        eventually(lambda: sum(bool(each.ended_s) for each in clients.answers) >= 10, LONG_S)
        totals = collector.picture.totals
        assert totals is not None
        answers = [each for each in clients.answers if each.frames_s]
        for told, exact in (
            (totals.ttft_s, [each.ttft_s for each in answers]),
            (totals.itl_s, [gap for each in answers for gap in each.gaps_s]),
        ):
            assert told.p50 is not None
            assert told.p95 is not None
            # An estimate out of buckets that are up to 2.5 times as wide as where they begin.
            middle = percentile(exact, 0.5)
            assert middle / 3 <= told.p50 <= middle * 3
            assert told.p50 <= told.p95 <= 3 * max(exact)
        assert totals.queue_wait_s.p50 is not None


@both
def test_the_verbs_that_look(peer: Peer, run: Run, tmp_path: Path) -> None:
    with busy(peer):
        eventually(lambda: run("--connect", peer.connect, "status", "--json").document["totals"]["running"])
        listed = run("--connect", peer.connect, "replicas")
        assert (listed.code, "e0" in listed.out) == (codes.OK, True)
        found = run("--connect", peer.connect, "doctor", "--json")
        assert found.code == codes.OK, found.err
        assert "findings" in found.document
        recording = tmp_path / "peer.icr"
        recorded = run("--connect", peer.connect, "record", "--duration", "5s", str(recording))
        assert recorded.code == codes.OK, recorded.err
    was = run("replay", "--at", "now-0s", "--json", str(recording))
    assert was.code == codes.OK, was.err
    (row,) = was.document["replicas"]
    assert (row["id"], row["foreign"]) == ("e0", peer.product)
    assert 1 <= row["running"] <= FIT
    assert run("--connect", peer.connect, "events", "--json").code == codes.OK


def test_slots_are_the_roster(llamacpp: Peer, run: Run) -> None:
    with watching(llamacpp.connect) as collector, busy(llamacpp):
        live(collector)
        collector.set_interest(["e0"])
        picture = eventually(
            lambda: collector.picture if len(collector.picture.replicas["e0"].rows) == FIT else None, LONG_S
        )
        for row in picture.replicas["e0"].rows.values():
            assert row.id.startswith("task-")
            assert row.phase in ("prefill", "decode")
            assert 0 <= row.generated_tokens <= 28
            assert row.max_tokens is not None
            assert 12 <= row.max_tokens <= 28
        eventually(
            lambda: [
                row
                for row in collector.picture.replicas["e0"].rows.values()
                if row.generated_tokens and 40 <= row.prompt_tokens <= 121
            ],
            LONG_S,
        )
        told = run("--connect", llamacpp.connect, "requests", "--json").document["requests"]
        assert 1 <= len(told) <= FIT


def test_a_vllm_does_not_tell_its_requests(vllm: Peer, run: Run) -> None:
    refused = run("--connect", vllm.connect, "requests")
    assert refused.code == codes.ERROR
    assert "vLLM does not tell its requests" in refused.err


@pytest.mark.terminal
@both
def test_an_operator_sees_its_row(peer: Peer, console: Path, tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [str(console), "--connect", f"auto+{peer.url}"]
    with busy(peer), Terminal(command, columns=160, rows=40, env=environment) as terminal:
        screen = terminal.wait_for(r"e0\s+ready", LONG_S)
        assert "only watched" in screen
        assert "1/1 ready" in screen
        terminal.wait_for(r"e0\s+ready.*\bok\b", LONG_S)
        terminal.send("enter")
        told = r"task-\d+" if peer.name == "llamacpp" else r"vLLM does not tell its requests"
        terminal.wait_for(told, LONG_S)
        terminal.send("q")
        assert terminal.wait_exit(60) == 0


@both
def test_killed_under_load_and_started_anew(peer: Peer, run: Run) -> None:
    with watching(f"auto+{peer.url}") as collector:
        live(collector)
        with busy(peer, dies=True) as clients:
            eventually(lambda: any(each.ended_s for each in clients.answers), LONG_S)
            # A counter that the console has seen above nothing: else none falls.
            eventually(lambda: collector.picture.replicas["e0"].status.prefix_queries_tokens, LONG_S)
            peer.kill()
        lost = eventually(
            lambda: collector.picture if collector.picture.link.state == "lost" else None, LONG_S
        )
        assert lost.link.message
        assert "e0" in lost.replicas  # what was known last stays
        assert run("--connect", peer.connect, "status").code == codes.UNREACHABLE
        peer.restart()
        # Beside what the console itself saw: that the link went away and came back.
        eventually(lambda: "RESTARTED" in [event.reason for event in collector.picture.events], LONG_S)
        assert "link lost" in [event.reason for event in collector.picture.events]
        eventually(lambda: collector.picture.replicas["e0"].status.incarnation == 1, LONG_S)
        eventually(lambda: collector.picture.link.state == "live", LONG_S)
