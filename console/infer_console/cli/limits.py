"""limits: show or change what the schedulers live by, while they run."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING

from infer_engine.protocol import ChangeLimits, Command, LiveLimits, Replica
from msgspec.structs import replace

from infer_console.cli import codes
from infer_console.cli.assignments import AssignmentError, change_options, parse_assignments, revert_after_s
from infer_console.cli.call import call
from infer_console.cli.follow import send
from infer_console.cli.verb import Verb

if TYPE_CHECKING:
    from infer_console.sources.client import EngineClient

#: Each with what it bounds. The server says what it takes; this is what the help lists.
NAMES = {
    "token_budget": "most tokens computed in a step",
    "max_running": "most sequences in the batch",
    "admit_limit": "blocks in use up to which interactive requests are admitted",
    "batch_limit": "the same for the batch tier",
    "max_waiting": "most requests in a queue",
    "max_waiting_tokens": "most tokens in a queue",
    "max_passes": "how often a blocked head of the queue may be passed",
    "age_steps": "steps after which a waiting batch request goes first",
    "long_prefill_tokens": "a prompt with more tokens to compute is long",
    "max_long_prefills": "most long prompts that prefill at once",
}


def _limits(arguments: Namespace) -> int:
    from infer_console.cli.output import complain

    if not arguments.settings and arguments.revert_after is None:
        return _show(arguments)
    try:
        if not arguments.settings:
            raise AssignmentError("nothing to change was given, allowed is KEY=VALUE")
        given = parse_assignments(arguments.settings, NAMES)
        wrong = next((name for name, value in given.items() if type(value) is not int), None)
        if wrong is not None:
            raise AssignmentError(f"{wrong}: {given[wrong]!r} was given, allowed is a whole number")
        revert_s = revert_after_s(arguments)
    except AssignmentError as error:
        complain(f"limits: {error}")
        return codes.USAGE

    def build(actor: str) -> Command:
        return ChangeLimits(
            limits={name: value for name, value in given.items() if type(value) is int},
            replica=arguments.replica,
            revert_after_s=revert_s,
            dry_run=arguments.dry_run,
            reason=arguments.reason,
            actor=actor,
        )

    return send(arguments, build, None, wait=True)


def print_kept(replicas: Iterable[Replica]) -> None:
    """Which of them nobody gave to this run of the server."""
    from infer_console.cli.output import print_line
    from infer_console.view.format import count

    for replica in replicas:
        if replica.kept_limits and replica.spec is not None:
            kept = ", ".join(
                f"{name} {count(replica.spec.limits.get(name))} (since {_moment(at)})"
                for name, at in sorted(replica.kept_limits.items())
            )
            print_line(f"{replica.id}: kept from before the server's start: {kept}")


def _moment(at: float) -> str:
    from infer_console.view.format import UNKNOWN, clock

    day = time.strftime("%Y-%m-%d ", time.gmtime(at)) if clock(at) != UNKNOWN else ""
    return f"{day}{clock(at)}"


def _show(arguments: Namespace) -> int:
    from infer_console.cli.output import complain, print_json

    async def work(client: "EngineClient") -> int:
        document = await client.limits()
        kept = (await client.state()).replicas
        if arguments.replica is not None:
            if arguments.replica not in document.replicas:
                complain(f"there is no replica {arguments.replica}")
                return codes.ERROR
            document = replace(document, replicas={arguments.replica: document.replicas[arguments.replica]})
        if arguments.json:
            print_json(document)
        else:
            _print(document)
            print_kept(each for each in kept if each.id in document.replicas)
        return codes.OK

    return call(arguments, work)


def _print(document: LiveLimits) -> None:
    from infer_console.cli.output import print_table
    from infer_console.view.format import count

    names = [*NAMES, *sorted({name for limits in document.replicas.values() for name in limits} - {*NAMES})]
    print_table(
        ["LIMIT", *(f"{replica}>" for replica in document.replicas), "WHAT"],
        [
            [name, *(count(limits.get(name)) for limits in document.replicas.values()), NAMES.get(name, "")]
            for name in names
        ],
    )


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="KEY=VALUE",
        help="all of them or none take effect, between two steps; without any: show",
    )
    parser.add_argument("--replica", metavar="REPLICA", help="only this one (default: all)")
    change_options(parser)


VERBS = (
    Verb(
        name="limits",
        help="show or change what the schedulers live by: token budget, batch size, queue limits, marks",
        arguments=_arguments,
        run=_limits,
    ),
)
