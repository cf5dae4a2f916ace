"""web: the console in a browser, for whoever has the URL with its token."""

import importlib.util
import ipaddress
import os
import secrets
import sys
from argparse import ArgumentParser, Namespace

from infer_console.cli import codes
from infer_console.cli.verb import Verb
from infer_console.connect import ConnectError, Target, resolve_running
from infer_console.credentials import CredentialError, read_token

DEFAULT_PORT = 8765
LEAST_TOKEN = 16
#: How a console is told to draw for a browser.
WEB_DRIVER = "infer_console.ui.web_driver:QueuedWebDriver"


def is_drawn_for_web() -> bool:
    """This process is the console of a browser's tab: its terminal is a pipe."""
    return os.environ.get("TEXTUAL_DRIVER") == WEB_DRIVER


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="default 127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, metavar="N", help=f"default {DEFAULT_PORT}")
    parser.add_argument(
        "--token-file",
        metavar="PATH",
        help="the token that browsers have to bring, else a new one; needed where it is not loopback",
    )


def _run(arguments: Namespace) -> int:
    from infer_console.cli.output import complain

    if importlib.util.find_spec("textual_serve") is None:
        complain("web: textual-serve is not installed: pip install 'infer-console[web]'")
        return codes.ERROR
    refusal = refused(arguments.host, arguments.port, arguments.token_file)
    if refusal is not None:
        complain(refusal)
        return codes.USAGE
    try:
        token = read_token(
            token_file=arguments.token_file, token_env=None, environ={}
        ) or secrets.token_urlsafe(24)
        if len(token) < LEAST_TOKEN:
            complain(f"web: the token of {arguments.token_file} is shorter than {LEAST_TOKEN} characters")
            return codes.USAGE
        target = resolve_running(arguments.connect, context=arguments.context)
    except (ConnectError, CredentialError) as error:
        complain(f"web: {error}")
        return codes.USAGE
    from infer_console.ui.web import serve_web

    try:
        words = console_words(target, read_only=arguments.read_only)
        serve_web(words, arguments.host, arguments.port, token, _announce)
    except OSError as error:
        complain(f"web: {arguments.host}:{arguments.port}: {error.strerror or error}")
        return codes.ERROR
    return codes.OK


def _announce(url: str) -> None:
    print(f"infer-console is at {url}\nctrl+c ends it, and its consoles", flush=True)


def refused(host: str, port: int, token_file: str | None) -> str | None:
    """Why it is not served there; None where it is."""
    if not 1 <= port <= 65535:
        return f"web: --port: {port} was given, allowed is 1 to 65535"
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return f"web: --host: {host!r} was given, allowed is an address such as 127.0.0.1, or localhost"
    if not loopback and token_file is None:
        return (
            f"web: {host} is not loopback: there --token-file is needed; it speaks plain HTTP, "
            "so put a proxy with TLS before it, or use ssh -L"
        )
    return None


def console_words(target: Target, *, read_only: bool) -> list[str]:
    """The command of one tab's console. It connects: it never starts an engine of its own."""
    named = ["--context", target.name] if target.name is not None else ["--connect", target.url]
    start = "from infer_console.cli import main; raise SystemExit(main())"
    return [sys.executable, "-c", start, *named, *(["--read-only"] if read_only else [])]


VERBS = (
    Verb(
        name="web", help="the console in a browser, on loopback, with a token", arguments=_arguments, run=_run
    ),
)
