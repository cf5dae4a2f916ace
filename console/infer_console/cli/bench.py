"""bench: what the engine reaches on this machine, or what the console costs to paint."""

import os
import platform
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from infer_console.cli import codes
from infer_console.cli.verb import Verb, json_option
from infer_console.cli.words import whole

#: What the widgets cost to paint beside Textual's own; what the whole console costs on a simulated fleet.
CONSOLE_PARTS = ("paint", "live")


def _bench(arguments: Namespace) -> int:
    return _console(arguments) if arguments.what == "console" else _engine(arguments)


def _engine(arguments: Namespace) -> int:
    """In this process's place: the engine measures itself."""
    from infer_console.cli.output import complain
    from infer_console.connect import engine_installed

    if not engine_installed():
        complain("the engine is not installed here: pip install 'infer-console[engine]'")
        return codes.ERROR
    command = [sys.executable, "-m", "infer_engine", "bench", "--repeats", str(arguments.repeats)]
    for option, value in (("--only", arguments.only), ("--out", arguments.out)):
        command += [option, value] if value is not None else []
    for option, given in (("--json", arguments.json), ("--list", arguments.list)):
        command += [option] if given else []
    return os.execv(sys.executable, command)


def _console(arguments: Namespace) -> int:
    from infer_console.cli.output import complain, print_json, print_table

    for option in ("out", "list"):
        if getattr(arguments, option):
            complain(f"--{option} is for bench engine")
            return codes.USAGE
    parts = (arguments.only or ",".join(CONSOLE_PARTS)).split(",")
    unknown = [part for part in parts if part not in CONSOLE_PARTS]
    if unknown:
        complain(f"--only {','.join(unknown)}: parts of bench console are {', '.join(CONSOLE_PARTS)}")
        return codes.USAGE
    try:
        results = _measure(parts, arguments.repeats)
    except BenchProblem as problem:
        complain(str(problem))
        return codes.ERROR
    if arguments.json:
        print_json({"version": 1, "machine": _machine(), "results": results})
    else:
        heads = ("measure", "of", "value>", "unit", "against", "ratio>", "wanted>", "met")
        print_table(heads, map(_cells, results))
    return codes.OK


class BenchProblem(Exception):
    """A part could not be measured; ``str()`` says why."""


def _measure(parts: Sequence[str], repeats: int) -> list[dict[str, Any]]:
    from infer_console.cli.output import note
    from infer_console.connect import engine_installed
    from infer_console.ui.benchmark import live, paint
    from infer_console.ui.benchmark.terminal import TerminalError

    results: list[dict[str, Any]] = []
    if "paint" in parts:
        results += paint.measure(repeats)
    if "live" in parts and not engine_installed():
        note("part live needs the engine: pip install 'infer-console[engine]'")
    elif "live" in parts:
        try:
            results += live.measure()
        except TerminalError as error:
            raise BenchProblem(str(error)) from error
    return results


def _machine() -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("infer-console", "textual", "rich")},
    }


def _cells(each: dict[str, Any]) -> list[str]:
    ratio = each["ratio"]
    return [
        each["measure"],
        each["subject"],
        f"{each['value']:,.1f}",
        each["unit"],
        each["against"] or "",
        "" if ratio is None else f"{ratio:.3f}×",
        "" if each["wanted"] is None else f"≤ {each['wanted']:,g}",
        "" if each["met"] is None else "yes" if each["met"] else "NO",
    ]


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        choices=("engine", "console"),
        default="engine",
        help="the engine's speed on this machine (default), or what the console costs to paint",
    )
    parser.add_argument(
        "--only", metavar="PART,…", help="some parts: --list names the engine's; of console: paint, live"
    )
    parser.add_argument(
        "--repeats", type=whole(1, 100), default=3, metavar="N", help="default 3: the median counts"
    )
    parser.add_argument("--out", metavar="FILE", help="merge the engine's figures into a file")
    parser.add_argument("--list", action="store_true", help="name the parts and how long each takes")
    json_option(parser)


VERBS = (
    Verb(
        name="bench",
        help="measure the engine on this machine, or what the console costs to paint",
        arguments=_arguments,
        run=_bench,
        connects=False,
    ),
)
