"""audit: who did or tried what; and whether the records are as they were written."""

from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infer_engine.audit_chain import Chain, ChainError, parse

from infer_console.cli import codes
from infer_console.cli.call import call
from infer_console.cli.verb import Verb, json_option

if TYPE_CHECKING:
    from infer_console.sources.client import EngineClient

DEFAULT_RECORDS = 50
#: Records fetched at once while a chain is followed.
PAGE = 1_000


def _audit(arguments: Namespace) -> int:
    if arguments.file:
        return _local(arguments)

    async def work(client: "EngineClient") -> int:
        if arguments.verify:
            verdict = _Verdict()
            async for record in _all(client):
                if not verdict.follow(record):
                    break
            return verdict.tell(arguments.json)
        page = await client.audit(limit=arguments.limit)
        if page.trouble:
            from infer_console.cli.output import note

            note(f"warning: the audit cannot be written now: {page.trouble}")
        return _show(page.records, arguments.json)

    return call(arguments, work)


async def _all(client: "EngineClient") -> AsyncIterator[dict[str, Any]]:
    after = 0
    while records := (await client.audit(limit=PAGE, after=after)).records:
        for record in records:
            yield record
        last = records[-1].get("number")
        after = last if isinstance(last, int) and last > after else after + len(records)


def _local(arguments: Namespace) -> int:
    """Files on this machine, without a server: given singly or as the directory that holds them."""
    from infer_console.cli.output import complain

    try:
        records = _read(Path(given) for given in arguments.file)
        if not arguments.verify:
            return _show(list(records)[-arguments.limit :], arguments.json)
        verdict = _Verdict()
        for record in records:
            if not verdict.follow(record):
                break
        return verdict.tell(arguments.json)
    except OSError as error:
        complain(f"{error.filename}: {error.strerror or error}")
        return codes.ERROR


def _read(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    files = [file for path in paths for file in (path.glob("audit-*.jsonl") if path.is_dir() else [path])]
    for file in sorted(files):
        with file.open("rb") as stream:
            for line in stream:
                yield parse(line) or {"unreadable": ascii(line[:200])}


class _Verdict:
    """What is found out about a chain, record by record."""

    def __init__(self) -> None:
        self._chain = Chain()
        self._broken: str | None = None

    def follow(self, record: dict[str, Any]) -> bool:
        """False when the chain does not hold any further."""
        try:
            self._chain.follow(record)
        except ChainError as error:
            self._broken = str(error)
        return self._broken is None

    def tell(self, as_json: bool) -> int:
        from infer_console.cli.output import complain, print_json, print_line

        chain = self._chain
        if as_json:
            print_json(
                {
                    "version": 1,
                    "intact": self._broken is None,
                    "first": chain.first,
                    "last": chain.number,
                    "sha256": chain.head,
                    "broken": self._broken,
                }
            )
        elif chain.first is None:
            print_line("no records")
        else:
            print_line(f"intact from record {chain.first} to {chain.number}; its sha256 is {chain.head}")
        if self._broken is None:
            return codes.OK
        if not as_json:
            complain(f"the chain is broken {self._broken}")
        return codes.ERROR


def _show(records: list[dict[str, Any]], as_json: bool) -> int:
    from infer_console.cli.output import print_json, print_table

    if as_json:
        print_json({"version": 1, "records": records})
        return codes.OK
    print_table(["NO>", "AT", "WHO", "STAGE", "VERB", "TARGET", "OUTCOME", "REASON"], map(_row, records))
    return codes.OK


def _row(record: dict[str, Any]) -> list[object]:
    actor, target, outcome = (_part(record, name) for name in ("actor", "target", "outcome"))
    at = record.get("ts")
    when = datetime.fromtimestamp(at, UTC).strftime("%F %T") if isinstance(at, int | float) else "–"
    who = actor.get("subject") or actor.get("claims") or "–"
    return [
        record.get("number", "–"),
        when,
        who,
        record.get("stage", record.get("unreadable", "–")),
        record.get("verb", "–"),
        target.get("id", "–"),
        f"{outcome.get('status')} {outcome.get('code')}" if outcome else "–",
        record.get("reason") or "–",
    ]


def _part(record: dict[str, Any], name: str) -> dict[str, Any]:
    found = record.get(name)
    return found if isinstance(found, dict) else {}


def _limit(given: str) -> int:
    return max(1, min(PAGE, int(given)))


def _arguments(parser: ArgumentParser) -> None:
    json_option(parser)
    parser.add_argument("--verify", action="store_true", help="follow the chain from its beginning")
    parser.add_argument(
        "--limit", type=_limit, default=DEFAULT_RECORDS, metavar="N", help="the last N records (at most 1000)"
    )
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="PATH",
        help="a file of the audit, or its directory, without a server; repeatable",
    )


VERBS = (
    Verb(
        name="audit",
        help="who did or tried what; --verify says whether the records are intact",
        arguments=_arguments,
        run=_audit,
    ),
)
