"""tenant: show what tenants use and may use, or change what one may."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from infer_engine.protocol import EVERYONE, ChangeTenant, Command, TenantLimits, Tenants
from msgspec.structs import replace

from infer_console.cli import codes
from infer_console.cli.assignments import AssignmentError, change_options, parse_assignments, revert_after_s
from infer_console.cli.call import call
from infer_console.cli.follow import send
from infer_console.cli.verb import Verb

if TYPE_CHECKING:
    from infer_console.sources.client import EngineClient


def _tenant(arguments: Namespace) -> int:
    from infer_console.cli.output import complain

    try:
        limits = parse_assignments(arguments.limit, TenantLimits.__struct_fields__)
        revert_s = revert_after_s(arguments)
    except AssignmentError as error:
        complain(f"tenant: {error}")
        return codes.USAGE
    if not limits and not arguments.forget and revert_s is None:
        return _show(arguments)
    if not arguments.name or bool(limits) == arguments.forget:
        complain("tenant: give a NAME (or '*' for all others), and either --limit or --forget")
        return codes.USAGE

    def build(actor: str) -> Command:
        return ChangeTenant(
            limits=limits,
            forget=arguments.forget,
            revert_after_s=revert_s,
            dry_run=arguments.dry_run,
            reason=arguments.reason,
            actor=actor,
        )

    return send(arguments, build, arguments.name, wait=True)


def _show(arguments: Namespace) -> int:
    from infer_console.cli.output import complain, print_json

    async def work(client: "EngineClient") -> int:
        document = await client.tenants()
        if arguments.name not in (None, EVERYONE):
            shown = [tenant for tenant in document.tenants if tenant.name == arguments.name]
            if not shown:
                complain(f"tenant {arguments.name} has no requests, had none lately, and no own limits")
                return codes.ERROR
            document = replace(document, tenants=shown)
        if arguments.json:
            print_json(document)
        else:
            _print(document)
        return codes.OK

    return call(arguments, work)


def _print(document: Tenants) -> None:
    from infer_console.cli.output import print_table
    from infer_console.view.format import count, percent

    heads = ["RUN>", "WAIT>", "KV BLK>", "REQ/MIN>", "REFUSED>"]
    limits = ["REQ/MIN<=>", "PROMPT<=>", "KV%<=>", "LONG<=>", "TIER"]

    def limit_cells(each: TenantLimits) -> list[str]:
        return [
            count(each.requests_per_minute),
            count(each.prompt_tokens),
            percent(each.kv_share),
            count(each.long_prefills),
            each.tier or "–",
        ]

    rows = [
        [
            each.name,
            count(each.running),
            count(each.waiting),
            count(each.kv_blocks),
            count(each.requests_last_minute),
            count(each.refused),
            *limit_cells(each.limits),
        ]
        for each in document.tenants
    ]
    print_table(
        ["TENANT", *heads, *limits],
        [*rows, ["* (all others)", *("" for _ in heads), *limit_cells(document.default)]],
    )


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="the tenant, or '*': all without own limits")
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"{', '.join(TenantLimits.__struct_fields__)}; VALUE none lifts one; repeatable",
    )
    parser.add_argument("--forget", action="store_true", help="it goes by the limits of all others again")
    change_options(parser)


VERBS = (
    Verb(
        name="tenant",
        help="show what tenants use, or change what one may: rate, prompt length, KV share, tier",
        arguments=_arguments,
        run=_tenant,
    ),
)
