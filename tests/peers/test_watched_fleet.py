"""A real vLLM and a real llama.cpp server as one fleet: one of them is killed, the other goes on."""

from pathlib import Path

import pytest
from infer_console.cli import codes
from infer_engine.protocol import Replica
from support.cli import Run
from support.eventually import eventually
from support.peer import LONG_S, Peer, busy, watching
from support.terminal import Terminal

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1800)]


def test_both_are_rows_of_one_fleet(llamacpp: Peer, vllm: Peer, run: Run) -> None:
    connect = ("--connect", f"{llamacpp.connect},auto+{vllm.url}")
    with busy(llamacpp), busy(vllm):

        def at_work() -> dict[str, object] | None:
            answer = run(*connect, "status", "--json")
            assert answer.code == codes.OK, answer.err
            told = answer.document
            return told if all(row["running"] for row in told["replicas"]) else None

        told = eventually(at_work, LONG_S)
    rows = told["replicas"]
    assert isinstance(rows, list)
    assert {row["foreign"] for row in rows} == {"llama.cpp", "vLLM"}
    assert {row["id"] for row in rows} == {f"127.0.0.1:{each.port}" for each in (llamacpp, vllm)}
    totals = told["totals"]
    assert isinstance(totals, dict)
    assert totals["running"] == sum(row["running"] for row in rows)
    assert (totals["replicas"], totals["ready"]) == (2, 2)


def test_one_is_killed_and_started_anew_while_the_other_goes_on(llamacpp: Peer, vllm: Peer) -> None:
    killed, other = f"127.0.0.1:{llamacpp.port}", f"127.0.0.1:{vllm.port}"
    with watching(f"{llamacpp.connect},{vllm.connect}") as collector:

        def row(name: str) -> Replica | None:
            shown = collector.picture.replicas.get(name)
            return shown.status if shown else None

        def state(name: str) -> str | None:
            return found.state if (found := row(name)) else None

        eventually(lambda: state(killed) == state(other) == "ready", LONG_S)
        with busy(llamacpp, dies=True) as clients:
            eventually(lambda: any(each.ended_s for each in clients.answers), LONG_S)
            # A counter that the console has seen above nothing: else none falls.
            eventually(
                lambda: (found := row(killed)) and found.running and found.prefix_queries_tokens, LONG_S
            )
            llamacpp.kill()
        eventually(lambda: state(killed) == "failed", LONG_S)
        lost = row(killed)
        assert lost is not None
        assert "unreachable" in (lost.error or "")
        assert lost.running is None  # what it told last is not told as what is
        assert state(other) == "ready"
        assert collector.picture.link.state == "live"
        llamacpp.restart()
        eventually(lambda: state(killed) == "ready", LONG_S)

        def happened(name: str) -> list[str | None]:
            return [event.reason for event in collector.picture.events if event.replica == name]

        # It may be seen loading on the way.
        eventually(lambda: {"failed", "RESTARTED", "ready"} <= {*happened(killed)}, LONG_S)
        assert "RESTARTED" not in happened(other)


@pytest.mark.terminal
def test_an_operator_sees_both(llamacpp: Peer, vllm: Peer, console: Path, tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [str(console), "--connect", f"{llamacpp.connect},{vllm.connect}"]
    with Terminal(command, columns=160, rows=40, env=environment) as terminal:
        terminal.wait_for(r"2/2 ready", LONG_S)
        screen = terminal.wait_for(rf"127\.0\.0\.1:{llamacpp.port}\s+ready", LONG_S)
        assert f"127.0.0.1:{vllm.port}" in screen
        terminal.send("q")
        assert terminal.wait_exit(60) == 0
