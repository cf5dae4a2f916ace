"""replica: a replica of this machine joins a server's fleet by itself, done by the engine's own command."""

from argparse import ArgumentParser, Namespace

from infer_console.cli.engine_command import become_engine
from infer_console.cli.verb import Verb

#: Option, metavar, help.
OPTIONS = (
    ("--join", "tcp://HOST:PORT", "where the server takes replicas: its --join-listen"),
    ("--server-key", "FILE", "the server's public key: its join-key.pub"),
    ("--key", "FILE", "this replica's own secret key, made where missing"),
    ("--id", "ID", "what it is to be called in the fleet; else the next free id"),
    ("--model", "M", "the fleet's model, where this machine has it"),
    ("--device", "auto|cpu|cuda", "what it computes on; else as the server's settings say"),
    ("--threads", "N", "compute threads; else all cores"),
    ("--kv-blocks", "N", "KV blocks; else as the server's settings say"),
    ("--drain-s", "SECONDS", "how long leaving may take after SIGTERM (default 25)"),
)


def _replica(arguments: Namespace) -> int:
    return become_engine("replica", words(arguments), "replicas", computes=True)


def words(arguments: Namespace) -> list[str]:
    """What the engine's command is told; it checks the words."""
    given: list[str] = []
    for option, _, _ in OPTIONS:
        value: str | None = getattr(arguments, option.removeprefix("--").replace("-", "_"))
        if value is not None:
            given.append(f"{option}={value}")
    return [*given, "--public-key"] if arguments.public_key else given


def _arguments(parser: ArgumentParser) -> None:
    for option, metavar, text in OPTIONS:
        parser.add_argument(option, metavar=metavar, help=text)
    parser.add_argument("--public-key", action="store_true", help="print its public key and end")


VERBS = (
    Verb(
        name="replica",
        help="have a replica of this machine join a server",
        arguments=_arguments,
        run=_replica,
        connects=False,
    ),
)
