"""A dialog of an action: opened by its key, and the command that it sent."""

from typing import TypeVar

from infer_engine.protocol import Command
from support.pilot import Driven

Sent = TypeVar("Sent", bound=Command)


async def open_on(driven: Driven, key: str, title: str) -> None:
    """Press the key, and wait until the server has said what the action would do."""
    await driven.press(key)
    await driven.wait_for(title)
    await driven.wait_for("the server's prediction")


async def look_at_r2(driven: Driven) -> None:
    """The Replica screen of the incident, the cursor on the first request of its roster."""
    driven.app.look.replica = "r2"
    await driven.press("2")
    await driven.wait_for("ROSTER")


async def applied(driven: Driven, kind: type[Sent], number: int = 1) -> tuple[Sent, str | None]:
    """The command that was sent last to be done, when there were so many, and its target."""
    await driven.wait(f"command {number}", lambda: len(driven.collector.applied) == number)
    command, target = driven.collector.applied[number - 1]
    assert isinstance(command, kind)
    return command, target
