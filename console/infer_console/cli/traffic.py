"""inject: test traffic, tagged, bounded and of lowest priority."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from infer_engine.protocol import Command, Inject, TraceRequest
from msgspec.structs import replace

from infer_console.actions.params import Given, ParamError
from infer_console.actions.trace_file import MOST_BYTES, TraceError, read_trace
from infer_console.actions.traffic import INJECT, PROFILES, STOP_INJECT
from infer_console.cli import codes
from infer_console.cli.follow import act, send
from infer_console.cli.options import add_options, given_options
from infer_console.cli.verb import Verb

TRACE = "trace"
NAMES = (*PROFILES, TRACE)


def _inject(arguments: Namespace) -> int:
    from infer_console.cli.output import complain

    given = dict(given_options(arguments, INJECT))
    profile = given.pop("profile", None)
    if arguments.stop:
        useless = sorted(set(given) - {"reason"}) + (["PROFILE"] if profile else [])
        useless += ["--trace"] if arguments.trace else []
        if useless:
            complain(f"--stop takes no {useless[0]}")
            return codes.USAGE
        return act(arguments, STOP_INJECT, None, given, wait=False)
    if arguments.trace is not None or profile == TRACE:
        return _play(arguments, profile, given)
    if not profile:
        complain(f"inject needs a PROFILE ({', '.join(NAMES)}) or --stop")
        return codes.USAGE
    if "rate" in given and "concurrency" in given:
        complain("inject: give --rate or --concurrency: a closed loop has no rate")
        return codes.USAGE
    return act(arguments, INJECT, None, {**given, "profile": profile}, wait=False)


def _play(arguments: Namespace, profile: str | bool | None, given: Given) -> int:
    """Send the requests of a file as they were recorded."""
    from infer_console.cli.output import complain

    useless = [f"--{name}" for name in ("rate", "concurrency") if name in given]
    if profile not in (None, TRACE):
        useless.append(f"profile {profile}")
    if useless or arguments.trace is None:
        wrong = f"a trace takes no {useless[0]}" if useless else f"the profile {TRACE} needs --trace FILE"
        complain(f"inject: {wrong}")
        return codes.USAGE
    try:
        trace = _read(arguments.trace)
        values = INJECT.parse(given)
    except (OSError, UnicodeDecodeError, TraceError, ParamError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else error
        complain(f"inject: {what}" if isinstance(error, ParamError) else f"{arguments.trace}: {what}")
        return codes.USAGE

    def build(actor: str) -> Command:
        command = INJECT.command(None, values, actor=actor, dry_run=arguments.dry_run)
        if not isinstance(command, Inject):
            raise TypeError(type(command))
        duration_s = command.duration_s if "duration" in given else None
        return replace(
            command,
            profile=TRACE,
            trace=trace,
            rate_per_s=None,
            duration_s=duration_s,
            tier=command.tier if "tier" in given else None,
        )

    return send(arguments, build, None, wait=False)


def _read(name: str) -> list[TraceRequest]:
    with Path(name).open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise TraceError(f"it is larger than {MOST_BYTES} bytes")
    return read_trace(content.decode())


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help=", ".join(NAMES))
    parser.add_argument("--stop", action="store_true", help="stop the traffic that is running")
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="send what a file recorded: JSON lines or CSV of arrival_s, prompt_tokens, output_tokens, tier",
    )
    add_options(parser, INJECT, leave_out=("profile",))


VERBS = (
    Verb(
        name="inject",
        help="send test traffic for a while, or stop it",
        arguments=_arguments,
        run=_inject,
    ),
)
