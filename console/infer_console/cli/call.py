"""One conversation with an engine server, from the options to the exit code."""

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from infer_engine.protocol import Problem

from infer_console.cli import codes
from infer_console.connect import DEFAULT_SOURCE, ConnectError, Target, resolve, resolve_running

if TYPE_CHECKING:
    from infer_console.sources.client import EngineClient

Work = Callable[["EngineClient"], Awaitable[int]]


def call(arguments: Namespace, work: Work) -> int:
    """Connect to the server that the options name, do ``work``, and turn every failure into its exit code."""
    target = find_target(arguments)
    return codes.USAGE if target is None else asyncio.run(_converse(target, work))


def find_target(arguments: Namespace) -> Target | None:
    """None after the complaint about what was given."""
    from infer_console.cli.output import complain

    try:
        return resolve_running(arguments.connect, context=arguments.context)
    except ConnectError as error:
        complain(str(error))
        return None


async def _converse(target: Target, work: Work) -> int:
    from infer_console.cli.output import complain
    from infer_console.sources.client import EngineClient
    from infer_console.sources.failures import NotUnderstoodError, RefusedError, UnreachableError

    try:
        async with EngineClient(target) as client:
            return await work(client)
    except RefusedError as refused:
        complain(describe(refused.problem))
        return codes.of_problem(refused.problem)
    except UnreachableError as failure:
        complain(str(failure))
        if target.source == DEFAULT_SOURCE:
            complain(
                "start a server with infer-console serve, or name one with --connect URL "
                "(infer-console discover lists those of this machine)"
            )
        elif target.socket is not None and target.ssh is None:
            complain("infer-console discover lists the servers of this machine")
        return codes.UNREACHABLE
    except NotUnderstoodError as failure:
        complain(str(failure))
        return codes.ERROR


def describe(problem: Problem) -> str:
    """A problem in one line: what, why, and the code for scripts."""
    what = f"{problem.title.rstrip('.')}: {problem.detail}" if problem.detail else problem.title
    return f"{what} [{problem.code}]"


def is_read_only(arguments: Namespace) -> bool:
    """Whether the option or the context forbids to change anything; complains when it does."""
    from infer_console.cli.output import complain

    try:
        target = resolve(arguments.connect, context=arguments.context)
    except ConnectError:
        return False  # call() will say so
    if arguments.read_only:
        by = "--read-only"
    elif target is not None and target.read_only:
        by = f"the {target.source}"
    else:
        return False
    complain(f"read-only, as {by} says: nothing was changed")
    return True
