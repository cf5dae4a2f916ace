"""token: making, listing and revoking tokens of the control API, done by the engine's own command."""

from argparse import ArgumentParser, Namespace

from infer_console.cli.engine_command import become_engine
from infer_console.cli.verb import Verb

ACTIONS = ("new", "list", "revoke")


def _token(arguments: Namespace) -> int:
    return become_engine("token", words(arguments), "tokens")


def words(arguments: Namespace) -> list[str]:
    """What the engine's command is told; it checks the words."""
    given = [arguments.action]
    if arguments.id is not None:
        given.append(arguments.id)
    for option in ("name", "role", "expires", "file"):
        value: str | None = getattr(arguments, option)
        if value is not None:
            given.append(f"--{option}={value}")
    return [*given, "--json"] if arguments.json else given


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=ACTIONS, help="add a token and print it once; list; take one out of the file"
    )
    parser.add_argument("id", nargs="?", help="revoke: the token's id, the second part of it")
    parser.add_argument("--file", metavar="FILE", required=True, help="the server's token file")
    parser.add_argument("--name", metavar="NAME", help="new: whose token it is")
    parser.add_argument("--role", metavar="ROLE", help="new: viewer, viewer+content, operator or admin")
    parser.add_argument("--expires", metavar="DAYSd", help="new: after how many days, such as 90d")
    parser.add_argument("--json", action="store_true", help="list: one JSON document on stdout")


VERBS = (
    Verb(
        name="token",
        help="make, list and revoke tokens of the control API",
        arguments=_arguments,
        run=_token,
        connects=False,
    ),
)
