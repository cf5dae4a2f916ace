"""proxy: joins this process's stdin and stdout to the control socket of a server on this machine."""

from argparse import ArgumentParser, Namespace

from infer_console.cli import codes
from infer_console.cli.verb import Verb
from infer_console.connect import ConnectError, parse_url, resolve_running


def _proxy(arguments: Namespace) -> int:
    from infer_console.cli.output import complain
    from infer_console.proxy import join

    try:
        target = parse_url(arguments.control, "--control") if arguments.control else resolve_running([], {})
    except ConnectError as error:
        complain(str(error))
        return codes.USAGE
    if target.socket is None:
        complain(f"--control: {target.url} is no unix socket")
        return codes.USAGE
    try:
        join(target.socket, greet=arguments.greet)
    except OSError as error:
        complain(f"{target.url}: {error.strerror or error}")
        return codes.UNREACHABLE
    return codes.OK


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--control", metavar="unix:///path", help="default: the server that verbs find here")
    parser.add_argument("--greet", action="store_true", help="say so, in one line, once it is connected")


VERBS = (
    Verb(
        name="proxy",
        help="join stdin and stdout to the control socket here; what ssh:// runs",
        arguments=_arguments,
        run=_proxy,
        connects=False,
    ),
)
