"""A command on its way: sent, and its operation followed to its end."""

import asyncio
import math
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from infer_engine.protocol import Command, CommandResult, Operation

from infer_console.actions.action import Action
from infer_console.actions.params import Given, ParamError
from infer_console.cli import codes
from infer_console.cli.call import call, is_read_only
from infer_console.cli.tui import is_terminal

if TYPE_CHECKING:
    from infer_console.sources.client import EngineClient

#: How often a waiting verb asks how far the operation is.
FOLLOW_PERIOD_S = 0.25
#: Into a file or a pipe, how far it is is told this often, at most.
QUIET_S = 5.0
#: How long after its deadline an operation that ends what is left may take.
DEADLINE_GRACE_S = 30.0
#: These wait for replicas to drain and to load; the server ends them in its own time.
UNHURRIED = frozenset({"release", "restart", "scale", "shed"})
#: For operations without a deadline, which take no time.
SHORT_TIMEOUT_S = 60.0


def act(arguments: Namespace, action: Action, target: str | None, given: Given, *, wait: bool) -> int:
    """Parse, send, print; with ``wait`` follow the operation to its end."""
    from infer_console.cli.output import complain

    try:
        values = action.parse(given)
    except ParamError as error:
        complain(str(error))
        return codes.USAGE

    def build(actor: str) -> Command:
        return action.command(target, values, actor=actor, dry_run=arguments.dry_run)

    return send(arguments, build, target, wait=wait)


def send(arguments: Namespace, build: Callable[[str], Command], target: str | None, *, wait: bool) -> int:
    """Send the command that ``build`` makes for an actor; what ``act`` does once it has one."""
    if not arguments.dry_run and is_read_only(arguments):
        return codes.DENIED
    return call(arguments, lambda client: _send(client, arguments, build, target, wait=wait))


async def _send(
    client: "EngineClient",
    arguments: Namespace,
    build: Callable[[str], Command],
    target: str | None,
    *,
    wait: bool,
) -> int:
    from infer_console.cli.output import note, print_json
    from infer_console.sources.client import actor

    command = build(actor())
    result = await client.command(command, target)
    for warning in result.effect.warnings:
        note(f"warning: {warning}")
    operation = result.operation
    code = codes.OK
    if operation is not None and wait:
        operation, code = await follow(client, operation)
        result = CommandResult(operation=operation, effect=result.effect)
    if arguments.json:
        print_json({"version": 1, "operation": result.operation, "effect": result.effect})
    else:
        _print_result(result)
    return code


def _print_result(result: CommandResult) -> None:
    from infer_console.cli.output import print_line

    operation = result.operation
    if operation is None:
        for line in result.effect.summary:
            print_line(line)
        return
    message = f": {operation.message}" if operation.message else ""
    print_line(f"{operation.id} {operation.kind} {operation.target} {operation.phase}{message}")


async def follow(client: "EngineClient", operation: Operation) -> tuple[Operation, int]:
    """Ask how far it is until it has ended, or until its deadline passed without that. It goes on whatever
    happens to us, and whoever stops waiting is told so."""
    from infer_console.cli.output import note
    from infer_console.sources.failures import UnreachableError

    try:
        operation = await _until_ended(client, operation)
    except (asyncio.CancelledError, UnreachableError):
        note(f"{operation.id} goes on by itself")
        raise
    match operation.phase:
        case "succeeded":
            return operation, codes.OK
        case "failed":
            return operation, codes.ERROR
        case "cancelled":
            return operation, codes.CONFLICT
        case _:
            note(f"{operation.id} has not ended in time; it goes on by itself")
            return operation, codes.TIMED_OUT


async def _until_ended(client: "EngineClient", operation: Operation) -> Operation:
    """The operation when it has ended, or as it was when the patience for it did."""
    from infer_console.cli.output import note

    give_up_s = time.monotonic() + _patience_s(operation)
    saying = Saying(0.0 if is_terminal(sys.stderr) else QUIET_S)
    while operation.phase in ("pending", "running") and time.monotonic() <= give_up_s:
        line = _progress(operation)
        if saying.is_news(line, operation.phase, time.monotonic()):
            note(line)
        await asyncio.sleep(FOLLOW_PERIOD_S)
        operation = await client.operation(operation.id)
    return operation


class Saying:
    """Which lines are worth saying: others than the last, after ``quiet_s`` or in another phase."""

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._line, self._phase, self._at_s = "", "", 0.0

    def is_news(self, line: str, phase: str, now_s: float) -> bool:
        if line == self._line or (phase == self._phase and now_s - self._at_s < self._quiet_s):
            return False
        self._line, self._phase, self._at_s = line, phase, now_s
        return True


def _patience_s(operation: Operation) -> float:
    if operation.kind in UNHURRIED:
        return math.inf
    if operation.deadline_at is None:
        return (
            math.inf if operation.kind == "drain" else SHORT_TIMEOUT_S
        )  # a drain was asked to take its time
    grace_s = DEADLINE_GRACE_S if operation.params.get("on_deadline") == "cancel" else 1.0
    # Both by the server's clock: ours may show something else.
    return max(0.0, operation.deadline_at - operation.started_at) + grace_s


def _progress(operation: Operation) -> str:
    done = "" if operation.total is None else f" {operation.done} of {operation.total} done"
    blocked = f", waiting for {operation.blocked_by[0]}" if operation.blocked_by else ""
    more = f" and {len(operation.blocked_by) - 1} more" if len(operation.blocked_by) > 1 else ""
    return f"{operation.id} {operation.kind} {operation.target}{done}{blocked}{more}"
