"""Verbs that act on one thing: drain, undrain, cancel, preempt."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from infer_engine.protocol import CancelWhere, Command

from infer_console.actions.cancel import CANCEL
from infer_console.actions.drain import DRAIN, UNDRAIN
from infer_console.actions.preempt import PREEMPT
from infer_console.cli import codes
from infer_console.cli.call import call
from infer_console.cli.follow import act, send
from infer_console.cli.options import add_options, given_options
from infer_console.cli.verb import Verb, no_wait_option

if TYPE_CHECKING:
    from infer_console.sources.client import EngineClient


def _drain(arguments: Namespace) -> int:
    return act(arguments, DRAIN, arguments.id, given_options(arguments, DRAIN), wait=not arguments.no_wait)


def _undrain(arguments: Namespace) -> int:
    return act(arguments, UNDRAIN, arguments.id, given_options(arguments, UNDRAIN), wait=True)


def _cancel(arguments: Namespace) -> int:
    from infer_console.cli.output import complain

    if (arguments.where is None) == (arguments.id is None):
        complain("cancel: give either an ID or --where EXPR")
        return codes.USAGE
    if arguments.where is not None:
        return _cancel_where(arguments)
    return act(arguments, CANCEL, arguments.id, given_options(arguments, CANCEL), wait=True)


def _cancel_where(arguments: Namespace) -> int:
    from infer_console.cli.output import complain

    if arguments.expect is None and not arguments.dry_run:
        # A condition that the server does not take is the first thing to know.
        checked = call(arguments, lambda client: _check(client, arguments.where))
        if checked == codes.OK:
            complain("cancel: --where needs --expect N; --dry-run tells how many there are, and lists them")
            return codes.USAGE
        return checked
    reason = given_options(arguments, CANCEL).get("reason", "")

    def build(actor: str) -> Command:
        return CancelWhere(
            where=arguments.where,
            expect=arguments.expect,
            max=arguments.max,
            dry_run=arguments.dry_run,
            reason=str(reason),
            actor=actor,
        )

    return send(arguments, build, None, wait=True)


async def _check(client: "EngineClient", where: str) -> int:
    from infer_console.sources.client import actor

    await client.command(CancelWhere(where=where, dry_run=True, actor=actor()))
    return codes.OK


def _preempt(arguments: Namespace) -> int:
    return act(arguments, PREEMPT, arguments.id, given_options(arguments, PREEMPT), wait=True)


def _drain_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="REPLICA")
    add_options(parser, DRAIN)
    no_wait_option(parser)


def _undrain_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="REPLICA")
    add_options(parser, UNDRAIN)


def _cancel_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="the request's id")
    parser.add_argument(
        "--where",
        metavar="EXPR",
        help="all requests for which it holds, such as 'tenant=acme and age_s>60'; needs --expect",
    )
    parser.add_argument(
        "--expect", type=int, metavar="N", help="how many you expect; none is cancelled if it is not so many"
    )
    parser.add_argument("--max", type=int, default=100, metavar="N", help="never more than N (default 100)")
    add_options(parser, CANCEL)


def _preempt_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the request's id")
    add_options(parser, PREEMPT)


VERBS = (
    Verb(
        name="drain",
        help="let a replica finish and take no more; returns when it is drained",
        arguments=_drain_arguments,
        run=_drain,
    ),
    Verb(
        name="undrain",
        help="take a drained or draining replica back",
        arguments=_undrain_arguments,
        run=_undrain,
    ),
    Verb(
        name="cancel",
        help="end one request, or all that --where selects",
        arguments=_cancel_arguments,
        run=_cancel,
    ),
    Verb(
        name="preempt",
        help="take a running request's blocks; it goes on later, or on another replica",
        arguments=_preempt_arguments,
        run=_preempt,
    ),
)
