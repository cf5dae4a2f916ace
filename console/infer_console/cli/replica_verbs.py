"""Verbs that decide which replicas there are and what becomes of them: fence, release, restart, scale,
shed."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import cast

from infer_engine.protocol import Command, DrainMode, Fence, Release, Restart, Scale, Shed

from infer_console.cli.follow import send
from infer_console.cli.verb import Verb, dry_run_option, json_option, no_wait_option
from infer_console.cli.words import duration

MAX_DEADLINE_S = 3600.0
MAX_REASON = 256


def _fence(arguments: Namespace) -> int:
    def build(actor: str) -> Command:
        return Fence(
            suspect=arguments.suspect,
            force=arguments.force,
            dry_run=arguments.dry_run,
            reason=arguments.reason,
            actor=actor,
        )

    return send(arguments, build, arguments.id, wait=not arguments.no_wait)


def _release(arguments: Namespace) -> int:
    def build(actor: str) -> Command:
        return Release(dry_run=arguments.dry_run, reason=arguments.reason, actor=actor)

    return send(arguments, build, arguments.id, wait=not arguments.no_wait)


def _restart(arguments: Namespace) -> int:
    def build(actor: str) -> Command:
        return Restart(
            mode=cast("DrainMode | None", arguments.mode),
            deadline_s=arguments.deadline,
            force=arguments.force,
            dry_run=arguments.dry_run,
            reason=arguments.reason,
            actor=actor,
        )

    return send(arguments, build, arguments.id, wait=not arguments.no_wait)


def _scale(arguments: Namespace) -> int:
    def build(actor: str) -> Command:
        return Scale(
            replicas=arguments.replicas,
            victims=arguments.victim,
            deadline_s=arguments.deadline,
            force=arguments.force,
            dry_run=arguments.dry_run,
            reason=arguments.reason,
            actor=actor,
        )

    return send(arguments, build, None, wait=not arguments.no_wait)


def _shed(arguments: Namespace) -> int:
    def build(actor: str) -> Command:
        return Shed(
            on=arguments.switch == "on", dry_run=arguments.dry_run, reason=arguments.reason, actor=actor
        )

    return send(arguments, build, None, wait=not arguments.no_wait)


# --- options -----------------------------------------------------------------------------------------------


def _common(parser: ArgumentParser, *, force: str | None = None) -> None:
    if force is not None:
        parser.add_argument("--force", action="store_true", help=force)
    parser.add_argument("--reason", type=_reason, default="", metavar="TEXT", help="for the audit")
    dry_run_option(parser)
    no_wait_option(parser)
    json_option(parser)


def _fence_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="REPLICA")
    parser.add_argument(
        "--suspect",
        action="store_true",
        help="its output is not to be trusted: requests that have some of it end, the others start over",
    )
    _common(parser, force="even the last ready replica")


def _release_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="REPLICA")
    _common(parser)


def _restart_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="REPLICA")
    parser.add_argument(
        "--mode", choices=("migrate", "wait", "cancel"), help="as of drain (default: the server's)"
    )
    _deadline(parser, "1m", "how long it may drain; what it still has then goes on as after a crash")
    _common(parser, force="even the last ready replica")


def _scale_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("replicas", type=int, metavar="N", help="how many, the fenced ones not counted")
    parser.add_argument(
        "--victim",
        action="append",
        default=[],
        metavar="REPLICA",
        help="take this one out (may be repeated; default: those that serve the least)",
    )
    _deadline(parser, "5m", "how long each may drain before it is ended")
    _common(parser, force="even below one ready replica")


def _shed_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("switch", choices=("on", "off"))
    _common(parser)


def _deadline(parser: ArgumentParser, default: str, text: str) -> None:
    deadline = duration(0.0, MAX_DEADLINE_S)
    parser.add_argument(
        "--deadline",
        type=deadline,
        default=deadline(default),
        metavar="DURATION",
        help=f"{text}; like 30s or 5m, at most 1h (default {default})",
    )


def _reason(given: str) -> str:
    if len(given) > MAX_REASON or not given.isprintable():
        raise ArgumentTypeError(f"allowed are at most {MAX_REASON} printable characters")
    return given


VERBS = (
    Verb(
        name="fence",
        help="take a broken replica out now: kill it, move its requests, start none before release",
        arguments=_fence_arguments,
        run=_fence,
    ),
    Verb(name="release", help="start a fenced replica again", arguments=_release_arguments, run=_release),
    Verb(
        name="restart",
        help="drain a replica, end its process and start another",
        arguments=_restart_arguments,
        run=_restart,
    ),
    Verb(
        name="scale",
        help="have so many replicas: start more, or drain and end some",
        arguments=_scale_arguments,
        run=_scale,
    ),
    Verb(
        name="shed",
        help="pause the batch tier everywhere, or let it go on",
        arguments=_shed_arguments,
        run=_shed,
    ),
)
