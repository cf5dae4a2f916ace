"""wait: until the fleet is ready."""

import asyncio
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from infer_engine.protocol import Status

from infer_console.cli import codes
from infer_console.cli.call import find_target
from infer_console.cli.verb import Verb
from infer_console.cli.words import duration
from infer_console.connect import DEFAULT_SOURCE, EMBEDDED_SOURCE

if TYPE_CHECKING:
    from infer_console.sources.client import EngineClient

PERIOD_S = 0.25
DEFAULT_TIMEOUT_S, MOST_TIMEOUT_S = 300.0, 86_400.0
#: Targets that nobody named: what is there may be another one by now.
FOUND = frozenset({DEFAULT_SOURCE, EMBEDDED_SOURCE})
#: Replicas that somebody took out on purpose are not waited for.
TAKEN_OUT = frozenset({"draining", "drained", "fenced", "stopping"})


def _wait(arguments: Namespace) -> int:
    from infer_console.cli.output import complain

    if not arguments.ready:
        complain("wait needs what to wait for: --ready")
        return codes.USAGE
    return asyncio.run(_until_ready(arguments, arguments.timeout))


async def _until_ready(arguments: Namespace, timeout_s: float) -> int:
    """A server that does not answer yet may still come, and where none was named it may be another than the
    one that was looked for first: only the time ends the waiting."""
    from infer_console.cli.output import complain, note
    from infer_console.sources.client import EngineClient

    deadline_s = time.monotonic() + timeout_s
    said = ""
    while (target := find_target(arguments)) is not None:
        async with EngineClient(target) as client:
            while True:
                missing, answered = await _missing(client)
                if missing is None:
                    return codes.OK
                if time.monotonic() > deadline_s:
                    complain(f"not ready within {timeout_s:g} s: {missing}")
                    return codes.TIMED_OUT
                if missing != said:
                    note(missing)
                    said = missing
                await asyncio.sleep(PERIOD_S)
                if not answered and target.source in FOUND:
                    break
    return codes.USAGE


async def _missing(client: "EngineClient") -> tuple[str | None, bool]:
    """What is missing until the fleet is ready, and whether a server answered at all."""
    from infer_console.sources.failures import NotUnderstoodError, RefusedError, UnreachableError

    try:
        return not_ready(await client.state()), True
    except UnreachableError as failure:
        return str(failure), False
    except (RefusedError, NotUnderstoodError) as failure:
        return str(failure), True


def not_ready(status: Status) -> str | None:
    """What is missing until every replica that should serve is ready, in words; None when nothing is."""
    wanted = [replica for replica in status.replicas if replica.state not in TAKEN_OUT]
    late = [f"{replica.id} {replica.state}" for replica in wanted if replica.state != "ready"]
    if late:
        return ", ".join(late)
    return None if wanted else "no replica is in service"


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--ready", action="store_true", help="until every replica in service is ready")
    parser.add_argument(
        "--timeout",
        type=duration(0.0, MOST_TIMEOUT_S),
        default=DEFAULT_TIMEOUT_S,
        metavar="DURATION",
        help=f"exit 6 after this long, like 30s or 5m (default {DEFAULT_TIMEOUT_S:g}s)",
    )


VERBS = (Verb(name="wait", help="wait until the fleet is ready", arguments=_arguments, run=_wait),)
