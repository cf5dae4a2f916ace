"""lease: who may change the whole fleet in several steps, with nobody else getting in between."""

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from infer_engine.protocol import PROTOCOL_VERSION, Lease

from infer_console.cli import codes
from infer_console.cli.call import call, is_read_only
from infer_console.cli.verb import Verb, json_option
from infer_console.credentials import LEASE_VARIABLE

if TYPE_CHECKING:
    from infer_console.sources.client import EngineClient

#: A lease ends after 30 s that nobody renews it.
RENEW_S = 10.0


def _lease(arguments: Namespace) -> int:
    from infer_console.cli.output import complain

    if (arguments.action in ("renew", "release")) != (arguments.id is not None):
        needed = "no ID is" if arguments.id else "the ID that take printed is"
        complain(f"lease {arguments.action}: {needed} needed")
        return codes.USAGE
    if arguments.action != "take" and (arguments.hold or arguments.purpose):
        complain("--hold and --purpose are for lease take")
        return codes.USAGE
    if arguments.action != "show" and is_read_only(arguments):
        return codes.DENIED
    return call(arguments, lambda client: _do(client, arguments))


async def _do(client: "EngineClient", arguments: Namespace) -> int:
    match arguments.action:
        case "take":
            lease = await client.acquire_lease(arguments.purpose)
            _tell(lease, arguments.json)
            return await _hold(client, lease) if arguments.hold else codes.OK
        case "renew":
            _tell(await client.renew_lease(arguments.id), arguments.json)
        case "release":
            await client.release_lease(arguments.id)
        case _:
            await _show(client, arguments.json)
    return codes.OK


async def _hold(client: "EngineClient", lease: Lease) -> int:
    """Until it is interrupted; then the lease is given back. RefusedError when it is lost before."""
    from infer_console.cli.output import note

    sys.stdout.flush()  # whoever reads it wants it now
    note("held until this ends (Ctrl-C)")
    try:
        while True:
            await asyncio.sleep(RENEW_S)
            lease = await client.renew_lease(lease.id)
    except asyncio.CancelledError:
        await client.release_lease(lease.id)
        raise


async def _show(client: "EngineClient", as_json: bool) -> None:
    from infer_console.cli.output import print_json, print_line

    held = (await client.leases()).leases
    if as_json:
        shown = [{name: getattr(each, name) for name in ("holder", "purpose", "expires_at")} for each in held]
        print_json({"version": PROTOCOL_VERSION, "leases": shown})
        return
    if not held:
        print_line("nobody holds the lease")
    for each in held:
        purpose = f" for {each.purpose}" if each.purpose else ""
        print_line(f"{each.holder} holds the lease{purpose} until {_clock(each.expires_at)}")


def _tell(lease: Lease, as_json: bool) -> None:
    """The token is what makes other verbs the holder's."""
    from infer_console.cli.output import note, print_json, print_line

    if as_json:
        print_json({"version": PROTOCOL_VERSION, "lease": lease})
        return
    print_line(f"{lease.id} {lease.token}")
    note(
        f"until {_clock(lease.expires_at)}; for the verbs that follow: export {LEASE_VARIABLE}={lease.token}"
    )


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%SZ}"


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("take", "renew", "release", "show"),
        help="take it for 30 s, hold it for 30 s more, give it back, or say who has it",
    )
    parser.add_argument("id", nargs="?", metavar="ID", help="renew and release: what take printed first")
    parser.add_argument("--purpose", default="", metavar="TEXT", help="take: what others are told")
    parser.add_argument("--hold", action="store_true", help="take: renew it until this command is ended")
    json_option(parser)


VERBS = (
    Verb(
        name="lease",
        help="be the only one who changes the whole fleet",
        arguments=_arguments,
        run=_lease,
    ),
)
