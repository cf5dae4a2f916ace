"""headroom: show or move the marks up to which requests are admitted."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING

from infer_engine.protocol import PROTOCOL_VERSION, Kv, Replica

from infer_console.actions.headroom import HEADROOM
from infer_console.cli import codes
from infer_console.cli.call import call
from infer_console.cli.follow import act
from infer_console.cli.limits import print_kept
from infer_console.cli.options import add_options, given_options
from infer_console.cli.verb import Verb

if TYPE_CHECKING:
    from infer_console.sources.client import EngineClient


def _headroom(arguments: Namespace) -> int:
    if arguments.headroom is None:
        return _show(arguments)
    given = given_options(arguments, HEADROOM)
    return act(arguments, HEADROOM, arguments.replica, given, wait=True)


def _show(arguments: Namespace) -> int:
    from infer_console.cli.output import complain, print_json

    async def work(client: "EngineClient") -> int:
        replicas = (await client.state()).replicas
        shown = [replica for replica in replicas if arguments.replica in (None, replica.id)]
        if arguments.replica is not None and not shown:
            complain(f"there is no replica {arguments.replica}")
            return codes.ERROR
        if arguments.json:
            print_json({"version": PROTOCOL_VERSION, "replicas": [_document(replica) for replica in shown]})
        else:
            _print(shown)
            print_kept(shown)
        return codes.OK

    return call(arguments, work)


def _document(replica: Replica) -> dict[str, object]:
    kv = replica.kv
    return {
        "id": replica.id,
        "total": kv.total,
        "used": kv.used,
        "admit_limit": kv.admit_limit,
        "batch_limit": kv.batch_limit,
        "headroom": _headroom_blocks(kv.total, kv.admit_limit),
        "batch_headroom": _headroom_blocks(kv.total, kv.batch_limit),
        "kept_limits": replica.kept_limits,
    }


def _headroom_blocks(total: int | None, limit: int | None) -> int | None:
    return None if total is None or limit is None else total - limit


def _print(replicas: Iterable[Replica]) -> None:
    from infer_console.cli.output import print_table
    from infer_console.view.format import count

    print_table(
        ["ID", "TOTAL>", "USED>", "ADMIT<=>", "HEADROOM>", "%>", "BATCH<=>", "HEADROOM>", "%>"],
        [
            [
                replica.id,
                count(replica.kv.total),
                count(replica.kv.used),
                *_mark(replica.kv.total, replica.kv.admit_limit),
                *_mark(replica.kv.total, _batch_mark(replica.kv)),
            ]
            for replica in replicas
        ],
    )


def _batch_mark(kv: Kv) -> int | None:
    """Batch is never admitted beyond the interactive mark, wherever its own is."""
    if kv.batch_limit is None or kv.admit_limit is None:
        return kv.batch_limit
    return min(kv.batch_limit, kv.admit_limit)


def _mark(total: int | None, limit: int | None) -> tuple[str, str, str]:
    from infer_console.view.format import count, percent

    blocks = _headroom_blocks(total, limit)
    share = blocks / total if blocks is not None and total else None
    return count(limit), count(blocks), percent(share)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "headroom",
        nargs="?",
        metavar="PERCENT|NNb",
        help="what stays free of new admissions: 10%% or 10 of the pool, or 50b blocks; without it: show",
    )
    parser.add_argument("--replica", metavar="REPLICA", help="only this one (default: all)")
    add_options(parser, HEADROOM, leave_out=("headroom",))


VERBS = (
    Verb(
        name="headroom",
        help="show or move how much of the pool stays free of new admissions; more admits fewer",
        arguments=_arguments,
        run=_headroom,
    ),
)
