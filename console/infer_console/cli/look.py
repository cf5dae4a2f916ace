"""Verbs that look: status, replicas, requests, blocks, events, operations."""

import asyncio
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from infer_engine.protocol import PROTOCOL_VERSION, RequestState, Status

from infer_console.cli import codes
from infer_console.cli.call import call
from infer_console.cli.verb import Verb, json_option
from infer_console.cli.words import whole

if TYPE_CHECKING:
    from infer_console.diagnosis.judge import Judge
    from infer_console.sources.client import EngineClient

Document = TypeVar("Document")

WATCH_PERIOD_S = 2.0
MAX_EVENTS = 10_000
#: What the server recorded last is older than this where its clock is another.
CLOCKS_DIFFER_S = 15.0


def _status(arguments: Namespace) -> int:
    from infer_engine.foreign.ours import OUR_COMMAND, OUR_GATEWAY

    from infer_console.cli.output import note, print_json
    from infer_console.cli.tables import print_status

    async def work(client: "EngineClient") -> int:
        judge: Judge | None = None
        while True:
            status = await client.state()
            if judge is None and with_alarms(status).alarms:
                judge = await _judge(client, status)
            status = with_alarms(status, judge)
            if arguments.json:
                print_json(status)
            else:
                print_status(status)
                if any(each.foreign == OUR_GATEWAY for each in status.replicas):
                    note(f"this is an infer-console; all of it is shown by {OUR_COMMAND}")
            if not arguments.watch:
                return codes.OK
            print(flush=True)
            await asyncio.sleep(WATCH_PERIOD_S)

    return call(arguments, work)


def print_status_once(arguments: Namespace) -> int:
    """The status as a table, for who asked for something else."""
    return _status(Namespace(**{**vars(arguments), "json": False, "watch": False}))


async def _judge(client: "EngineClient", status: Status) -> "Judge | None":
    """The diagnosis after what the server recorded of the last minutes, which tells causes and since when;
    None where there is none."""
    from infer_console.past.told_before import PAST_S, judged_before, told_before
    from infer_console.recording import RecordingError
    from infer_console.sources.failures import NotUnderstoodError, RefusedError

    recorder = status.fleet.recorder
    if recorder is None or recorder.until_at is None:
        return None
    now_at = time.time()
    shift_s = now_at - recorder.until_at
    if abs(shift_s) < CLOCKS_DIFFER_S:
        shift_s = 0.0
    try:
        content = await told_before(client, now_at - shift_s - PAST_S)
        if content is None:
            return None
        offset_s = now_at - time.monotonic()
        url = client.target.url
        return judged_before(content, url, shift_s=shift_s, offset_s=offset_s, go_on=lambda: True)
    except (RefusedError, NotUnderstoodError, RecordingError):
        return None


def with_alarms(status: Status, judge: "Judge | None" = None) -> Status:
    """The server's status with what the diagnosis makes of it: with causes and since when where it knows what
    was before."""
    import msgspec

    from infer_console.diagnosis.alarms import find_alarms
    from infer_console.state.picture import Link, Picture, ReplicaPicture

    picture = Picture(
        at=time.time() if judge is not None else 0.0,
        link=Link(url="", state="live", age_s=0.0),
        fleet=status.fleet,
        totals=status.totals,
        replicas={replica.id: ReplicaPicture(status=replica) for replica in status.replicas},
    )
    found = find_alarms(picture) if judge is None else judge.judged(picture, time.monotonic()).alarms
    return msgspec.structs.replace(status, alarms=[*status.alarms, *found])


def _replicas(arguments: Namespace) -> int:
    from infer_console.cli.tables import print_replicas, print_simulated

    async def fetch(client: "EngineClient") -> dict[str, Any]:
        status = await client.state()
        return {
            "version": PROTOCOL_VERSION,
            "simulated": status.fleet.simulated,
            "replicas": status.replicas,
        }

    def table(found: dict[str, Any]) -> None:
        print_simulated(found["simulated"])
        print_replicas(found["replicas"])

    return _show(arguments, fetch, table)


def _requests(arguments: Namespace) -> int:
    from infer_console.cli.tables import print_requests

    return _show(
        arguments,
        lambda client: client.requests(arguments.state, arguments.replica),
        lambda found: print_requests(found.requests),
    )


def _blocks(arguments: Namespace) -> int:
    from infer_console.cli.tables import print_blocks

    return _show(arguments, lambda client: client.blocks(arguments.id), print_blocks)


def _events(arguments: Namespace) -> int:
    from infer_console.cli.tables import print_events

    return _show(
        arguments, lambda client: client.events(arguments.limit), lambda found: print_events(found.events)
    )


def _operations(arguments: Namespace) -> int:
    from infer_console.cli.tables import print_operations

    return _show(
        arguments,
        lambda client: client.operations(),
        lambda found: print_operations(sorted(found.operations, key=lambda each: -each.started_at)),
    )


def _show(
    arguments: Namespace,
    fetch: Callable[["EngineClient"], Awaitable[Document]],
    print_table: Callable[[Document], None],
) -> int:
    """Fetch a document once and print it, as JSON or for a person."""
    from infer_console.cli.output import print_json
    from infer_console.cli.tables import print_simulated

    async def work(client: "EngineClient") -> int:
        document = await fetch(client)
        if arguments.json:
            print_json(document)
        else:
            print_simulated(getattr(document, "simulated", False))
            print_table(document)
        return codes.OK

    return call(arguments, work)


def _status_arguments(parser: ArgumentParser) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--json", action="store_true", help="one JSON document on stdout")
    either.add_argument(
        "--watch", action="store_true", help=f"again every {WATCH_PERIOD_S:g} s, until ctrl-C"
    )


def _requests_arguments(parser: ArgumentParser) -> None:
    json_option(parser)
    parser.add_argument("--state", choices=get_args(RequestState), help="only those in this state")
    parser.add_argument("--replica", metavar="REPLICA", help="only those of this replica")


def _blocks_arguments(parser: ArgumentParser) -> None:
    json_option(parser)
    parser.add_argument("id", metavar="REPLICA")


def _events_arguments(parser: ArgumentParser) -> None:
    json_option(parser)
    parser.add_argument(
        "--limit",
        type=whole(1, MAX_EVENTS),
        default=100,
        metavar="N",
        help=f"the newest N, at most {MAX_EVENTS} (default 100)",
    )


VERBS = (
    Verb(
        name="status",
        help="the fleet, its replicas and alarms",
        arguments=_status_arguments,
        run=_status,
    ),
    Verb(name="replicas", help="one line per replica", arguments=json_option, run=_replicas),
    Verb(
        name="requests",
        help="who runs and who waits, and why",
        arguments=_requests_arguments,
        run=_requests,
    ),
    Verb(name="blocks", help="a replica's KV block map", arguments=_blocks_arguments, run=_blocks),
    Verb(name="events", help="what happened, oldest first", arguments=_events_arguments, run=_events),
    Verb(
        name="operations",
        help="commands under way and done, newest first",
        arguments=json_option,
        run=_operations,
    ),
)
