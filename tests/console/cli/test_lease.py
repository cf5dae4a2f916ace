"""The verb lease against a real engine server: one holder, and everybody else is told who."""

import os
import signal
import subprocess
import sys

import pytest
from infer_console.cli import codes
from support.cli import Run
from support.server import EngineServer

MAIN = "from infer_console.cli import main; raise SystemExit(main())"


def test_who_holds_it_acts_and_the_others_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("lease", "show").out == "nobody holds the lease\n"
    taken = run("lease", "take", "--purpose", "an upgrade")
    assert taken.code == codes.OK
    id, token = taken.out.split()
    assert f"INFER_CONSOLE_LEASE={token}" in taken.err
    try:
        shown = run("lease", "show").out
        assert f"uid:{os.getuid()} holds the lease for an upgrade until " in shown
        (held,) = run("lease", "show", "--json").document["leases"]
        assert "token" not in held
        assert run("status", "--json").document["fleet"]["lease"] == held

        again = run("lease", "take")
        assert again.code == codes.CONFLICT
        assert "lease_held" in again.err
        dry = run("limits", "token_budget=64", "--dry-run")
        assert dry.code == codes.OK
        assert "refused while it lasts" in dry.err
        refused = run("limits", "token_budget=64")
        assert refused.code == codes.CONFLICT
        assert "holds the lease for an upgrade; it ends in " in refused.err

        monkeypatch.setenv("INFER_CONSOLE_LEASE", token)
        assert "refused" not in run("limits", "token_budget=64", "--dry-run").err
        assert run("limits", "max_passes=8").code == codes.OK
        assert run("lease", "renew", id).out == f"{id} {token}\n"
    finally:
        assert run("lease", "release", id).code == codes.OK
    lost = run("limits", "max_passes=8")
    assert lost.code == codes.CONFLICT
    assert "lease_lost" in lost.err
    assert run("lease", "release", id).code == codes.CONFLICT
    assert run("lease", "show", "--json").document["leases"] == []


def test_held_until_interrupted_it_is_given_back(run: Run, engine: EngineServer) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", MAIN, "lease", "take", "--hold"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "INFER_CONSOLE_CONNECT": engine.control_url},
        # The suite itself may have been started in the background, where shells have SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip()
        assert len(run("lease", "show", "--json").document["leases"]) == 1
    finally:
        holder.send_signal(signal.SIGINT)
        code = holder.wait(60)
        holder.stdout.close()
    assert code == codes.INTERRUPTED
    assert run("lease", "show", "--json").document["leases"] == []


@pytest.mark.parametrize("words", [("renew",), ("release",), ("take", "an-id"), ("show", "--hold")])
def test_words_that_do_not_fit(run: Run, words: tuple[str, ...]) -> None:
    assert run("lease", *words).code == codes.USAGE
