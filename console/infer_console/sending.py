"""Commands on their way to the server: each is answered, with its result or the problem that says why there
is none."""

import asyncio
import concurrent.futures
import logging

from infer_engine.protocol import Command, CommandResult, Problem

from infer_console.sources.client import EngineClient
from infer_console.sources.engine import describe
from infer_console.sources.failures import NotUnderstoodError, RefusedError, UnreachableError

log = logging.getLogger(__name__)

#: Commands under way at once; an operator's hands make few.
MAX_COMMANDS = 16

Answer = CommandResult | Problem


class Sending:
    """``expect`` may be called from any thread, the rest on the thread of the loop that sends."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Answer]] = set()
        self._unanswered: set[concurrent.futures.Future[Answer]] = set()

    def expect(self) -> "concurrent.futures.Future[Answer]":
        """Where the answer to one command will be."""
        future: concurrent.futures.Future[Answer] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()  # a command that was sent cannot be taken back
        self._unanswered.add(future)
        future.add_done_callback(self._unanswered.discard)
        return future

    def begin(
        self,
        client: EngineClient | None,
        command: Command,
        target: str | None,
        version: str | None,
        future: "concurrent.futures.Future[Answer]",
    ) -> None:
        if len(self.tasks) >= MAX_COMMANDS:
            title = f"{MAX_COMMANDS} commands are under way; wait for one to end."
            future.set_result(problem(429, "too_many_commands", title))
            return
        task = asyncio.ensure_future(_send(client, command, target, version))
        self.tasks.add(task)
        task.add_done_callback(lambda done: self._answered(done, future))

    def answer_the_rest(self) -> None:
        """Nothing is sent any more."""
        for future in list(self._unanswered):
            future.set_result(problem(503, "console_stopped", "The console stopped before the answer came."))

    def _answered(self, task: "asyncio.Task[Answer]", future: "concurrent.futures.Future[Answer]") -> None:
        self.tasks.discard(task)
        if task.cancelled():
            return  # the thread is ending and answers everything that is left
        error = task.exception()
        if error is None:
            future.set_result(task.result())
            return
        log.error("a command failed", exc_info=error)
        future.set_result(problem(500, "console_error", f"{type(error).__name__}: {error}"))


async def _send(
    client: EngineClient | None, command: Command, target: str | None, version: str | None
) -> Answer:
    if client is None:
        return problem(503, "console_stopped", "The console is not collecting.")
    try:
        return await client.command(command, target, version)
    except RefusedError as refused:
        return refused.problem
    except UnreachableError as failure:
        title = (
            "No answer: it is not known whether it was done."
            if failure.sent
            else "The server is unreachable."
        )
        return problem(503, "unreachable", title, describe(failure))
    except NotUnderstoodError as failure:
        return problem(502, "not_understood", "The answer was not understood.", describe(failure))


def problem(status: int, code: str, title: str, detail: str = "") -> Problem:
    return Problem(status=status, code=code, title=title, detail=detail)
