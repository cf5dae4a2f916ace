"""key: making API keys of the gateway, done by the engine's own command."""

from argparse import ArgumentParser, Namespace

from infer_console.cli.engine_command import become_engine
from infer_console.cli.verb import Verb

OPTIONS = ("file", "tenant", "tier", "concurrency", "expires")


def _key(arguments: Namespace) -> int:
    return become_engine("key", words(arguments), "keys")


def words(arguments: Namespace) -> list[str]:
    """What the engine's command is told; it checks the words."""
    given = [arguments.action]
    for option in OPTIONS:
        value: str | None = getattr(arguments, option)
        if value is not None:
            given.append(f"--{option}={value}")
    return [*given, "--", arguments.id]


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("new",), help="add a key to the file and print it, once")
    parser.add_argument("id", help="what the key is called: a-z, 0-9 and -")
    parser.add_argument("--file", metavar="FILE", required=True, help="the server's key file")
    parser.add_argument("--tenant", metavar="NAME", required=True, help="whose requests come with it")
    parser.add_argument("--tier", metavar="TIER", help="a ceiling: batch means only batch")
    parser.add_argument("--concurrency", metavar="N", help="most requests with it at once")
    parser.add_argument("--expires", metavar="DAYSd", help="after so many days, such as 90d")


VERBS = (
    Verb(
        name="key",
        help="make API keys of the gateway",
        arguments=_arguments,
        run=_key,
        connects=False,
    ),
)
