"""The real console in a real pseudo-terminal on a real engine: an operator's first minutes."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from support.server import EngineServer
from support.terminal import Terminal

pytestmark = [pytest.mark.terminal, pytest.mark.model]

SIZES = [(120, 36), (80, 24)]
#: A cursor or nothing, the letter of its blocks, the request's id.
ROSTER_ROW = re.compile(r"^[▸ ] *\S +[0-9a-f]{6} .*(prefill|decode)", re.MULTILINE)


def open_console(console: Path, server: EngineServer, columns: int, rows: int) -> Terminal:
    environment = {"XDG_CONFIG_HOME": str(server.directory / "config")}
    return Terminal(
        [str(console), "--connect", server.control_url], columns=columns, rows=rows, env=environment
    )


def ask(console: Path, server: EngineServer, *arguments: str) -> dict[str, object]:
    answer = subprocess.run(
        [str(console), *arguments, "--connect", server.control_url, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(answer.stdout)


def apply(terminal: Terminal, key: str) -> None:
    """The action's own key again in its open dialog, see that it was done, close it and see it gone."""
    terminal.send(key)
    terminal.wait_for(r"✓")
    terminal.send("esc")
    terminal.wait("the dialog gone", lambda text: "✓" not in text)


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_inject_watch_drain_and_leave(
    real_server: EngineServer, console: Path, columns: int, rows: int
) -> None:
    server = real_server
    with open_console(console, server, columns, rows) as terminal:
        terminal.wait_for(r"r0\s+ready")

        # I injects a chat profile; its effect is predicted before it is done.
        terminal.send("I")
        terminal.wait_for(r"the server's prediction")
        # For longer than all that follows takes, on however slow a machine.
        terminal.send("down", "down", "10m")
        terminal.wait_for(r"the server's prediction:(.|\n)*about 600 chat requests")
        terminal.send("up", "up")  # out of the field, which takes letters
        apply(terminal, "I")

        # Enter opens the selected replica: roster and block map show who holds what.
        terminal.send("enter")
        screen = terminal.wait(
            "a request in the roster and its blocks in the map",
            lambda text: ROSTER_ROW.search(text) and re.search(r"^ [█▓·:=A-Za-z]{20,}", text, re.MULTILINE),
        )
        replica = re.search(r"› (r\d)", screen)
        assert replica is not None, screen
        name = replica[1]

        # D drains it; the dialog names it and says what will happen.
        terminal.send("D")
        terminal.wait_for(f"Drain {name}")
        terminal.wait_for(r"the server's prediction")
        apply(terminal, "D")
        terminal.send("1")
        terminal.wait_for(rf"{name}\s+drained", 90)
        replicas = ask(console, server, "replicas")["replicas"]
        assert isinstance(replicas, list)
        drained = next(replica for replica in replicas if replica["id"] == name)
        assert (drained["state"], drained["running"], drained["kv"]["used"]) == ("drained", 0, 0)

        # U brings it back: the cursor is still on it.
        terminal.send("U")
        terminal.wait_for(f"Undrain {name}")
        terminal.wait_for(r"the server's prediction")
        apply(terminal, "U")
        terminal.wait_for(rf"{name}\s+ready")

        # I again stops what is still being injected.
        terminal.send("I")
        terminal.wait_for(r"Stop test traffic")
        terminal.wait_for(r"the server's prediction")
        apply(terminal, "I")

        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert terminal.tty_now() == terminal.tty_before
        assert server.process.poll() is None, "a remote engine outlives the console"
        assert server.errors == []
