"""inject: test traffic, tagged, bounded and of lowest priority."""

from argparse import ArgumentParser, Namespace

from infer_console.actions.traffic import INJECT, PROFILES, STOP_INJECT
from infer_console.cli import codes
from infer_console.cli.act import act
from infer_console.cli.options import add_options, given_options
from infer_console.cli.verb import Verb


def _inject(arguments: Namespace) -> int:
    from infer_console.cli.output import complain

    given = dict(given_options(arguments, INJECT))
    profile = given.pop("profile", None)
    if arguments.stop:
        useless = sorted(set(given) - {"reason"}) + (["PROFILE"] if profile else [])
        if useless:
            complain(f"--stop takes no {useless[0]}")
            return codes.USAGE
        return act(arguments, STOP_INJECT, None, given, wait=False)
    if not profile:
        complain(f"inject needs a PROFILE ({', '.join(PROFILES)}) or --stop")
        return codes.USAGE
    return act(arguments, INJECT, None, {**given, "profile": profile}, wait=False)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help=", ".join(PROFILES))
    parser.add_argument("--stop", action="store_true", help="stop the traffic that is running")
    add_options(parser, INJECT, leave_out=("profile",))


VERBS = (
    Verb(
        name="inject",
        help="send test traffic for a while, or stop it",
        arguments=_arguments,
        run=_inject,
    ),
)
