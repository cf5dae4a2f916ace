"""No verb: the console itself, on a server that was named or on an engine of its own."""

import importlib
import os
import signal
import sys
import threading
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from infer_console import heap
from infer_console.cli import codes
from infer_console.cli.web import is_drawn_for_web
from infer_console.connect import (
    ConnectError,
    Target,
    engine_installed,
    find_running,
    nothing_to_connect_to,
    resolve,
)
from infer_console.terminal.capabilities import capabilities
from infer_console.terminal.link import FASTEST_HZ, LINK_MODES

if TYPE_CHECKING:
    from infer_console.collector import Collector
    from infer_console.embedded import EmbeddedEngine
    from infer_console.ui.display import Display

DEFAULT_FPS = FASTEST_HZ
SLOW_END_S = 1.0
#: An exit status from here on is that of a signal.
FIRST_SIGNAL = 128
#: A signal waits no longer than this for what is still collecting.
SIGNALLED_STOP_S = 0.3
#: Of a console, each with a collector of its own.
MOST_FLEETS = 8


def tui_arguments(parser: ArgumentParser) -> None:
    read_only_option(parser, default=False)
    parser.add_argument(
        "--embedded",
        action="store_true",
        help="the console: on an engine of its own, also where one could be connected to",
    )
    display_options(parser)


def display_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--fps",
        type=_fps,
        default=DEFAULT_FPS,
        metavar="N",
        help=f"draw at most N times a second, 0.5 to 30 (default {DEFAULT_FPS:g}); the link may make it less",
    )
    parser.add_argument(
        "--link",
        choices=LINK_MODES,
        default="auto",
        help="the link to this terminal: measured (auto, default), narrow from the start (slow), never waited"
        " for (fast)",
    )
    draw_options(parser)


def draw_options(parser: ArgumentParser) -> None:
    """What the terminal bears and the operator wants to see and hear of it."""
    parser.add_argument(
        "--ascii", action="store_true", help="draw with ASCII alone (also where the locale is not UTF-8)"
    )
    parser.add_argument(
        "--no-bell", dest="bell", action="store_false", help="do not ring when a critical alarm is new"
    )
    parser.add_argument(
        "--no-title", dest="title", action="store_false", help="leave the window's title alone"
    )


def read_only_option(parser: ArgumentParser, default: bool | str) -> None:
    parser.add_argument(
        "--read-only", action="store_true", default=default, help="look only: nothing can be changed"
    )


def run_tui(arguments: Namespace) -> int:
    from infer_console.cli.output import complain

    heap.settle()
    web = is_drawn_for_web()
    terminals = web or (is_terminal(sys.stdin) and is_terminal(sys.stdout))
    dumb = terminals and not web and capabilities(os.environ).dumb
    if not terminals:
        complain("the console needs a terminal that can draw; for scripts: infer-console status --json")
        return codes.USAGE
    named = len(arguments.connect) + (arguments.context is not None)
    if arguments.embedded:
        if named:
            complain("--embedded: an engine of its own is no server that --connect or --context names")
            return codes.USAGE
        return _embed(arguments) if not dumb else _say_once(None, arguments)
    if named > 1 and not dumb:
        return _watch_several(arguments)
    try:
        target = resolve(arguments.connect, context=arguments.context)
        if target is None:
            target = find_running()
            _say_found(target)
    except ConnectError as error:
        complain(str(error))
        return codes.USAGE
    if dumb:
        return _say_once(target, arguments)
    if target is not None:
        return _watch(target, arguments)
    if not engine_installed():
        complain(nothing_to_connect_to())
        return codes.USAGE
    return _embed(arguments)


def _say_found(target: Target | None) -> None:
    """Nobody named it: which one it is stays on the terminal when the console has left."""
    from infer_console.cli.output import note

    if target is not None:
        note(
            f"connecting to {target.url} ({target.source}); --embedded starts an engine of the console's own"
        )


def _say_once(target: Target | None, arguments: Namespace) -> int:
    """On a terminal that cannot draw: one status as plain text."""
    from infer_console.cli.look import print_status_once
    from infer_console.cli.output import complain, note

    kind = os.environ.get("TERM") or "(none)"
    if target is None:
        complain(f"TERM={kind} cannot draw the console, and no engine is named: infer-console --connect URL")
        return codes.USAGE
    note(f"TERM={kind} cannot draw the console; this is one status, infer-console status --watch goes on")
    return print_status_once(arguments)


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _watch(target: Target, arguments: Namespace) -> int:
    from infer_console.collector import Collector

    return _show(Collector(target, read_only=arguments.read_only), None, arguments)


def _watch_several(arguments: Namespace) -> int:
    """A collector for each of the fleets that were named, the context's first; the first is shown."""
    from infer_console.cli.output import complain
    from infer_console.collector import STOP_TIMEOUT_S, Collector, stop_all

    given = len(arguments.connect) + (arguments.context is not None)
    if given > MOST_FLEETS:
        complain(f"--connect and --context: {given} were given, allowed are up to {MOST_FLEETS}")
        return codes.USAGE
    try:
        targets = [resolve([], context=arguments.context)] if arguments.context is not None else []
        targets += [resolve([url]) for url in dict.fromkeys(arguments.connect)]
    except ConnectError as error:
        complain(str(error))
        return codes.USAGE
    collectors = [
        Collector(target, read_only=arguments.read_only) for target in targets if target is not None
    ]
    stop_s = STOP_TIMEOUT_S
    try:
        for each in collectors:
            each.start()
        from infer_console.ui.app import run_app
        from infer_console.ui.fleets import Fleets

        fleets = Fleets(collectors)
        status = run_app(
            fleets,
            embedded=None,
            read_only=arguments.read_only,
            display=display_of(arguments),
            past=fleets,
        )
        stop_s = _finish(collectors, status)
        return status
    finally:
        stop_all(collectors, stop_s)


def _embed(arguments: Namespace) -> int:
    from infer_console.cli.output import complain
    from infer_console.collector import Collector
    from infer_console.embedded import EmbeddedEngine, EmbeddedError, default_settings, fetch_model

    if not engine_installed():
        complain("the engine is not installed here: pip install 'infer-console[engine]'")
        return codes.ERROR
    _end_tidily()
    try:
        settings = default_settings()
        fetch_model(settings["replica"]["model"], _import_screen)
        engine = EmbeddedEngine(settings)
        engine.start()
    except EmbeddedError as error:
        complain(str(error))
        return codes.ERROR
    try:
        return _show(
            Collector(engine.target, read_only=arguments.read_only, engine=engine.status), engine, arguments
        )
    finally:
        _end(engine)


def _import_screen() -> None:
    """What takes longest before the first frame, while there is something else to wait for."""
    importlib.import_module("infer_console.ui.app")


def _end(engine: "EmbeddedEngine") -> None:
    """Replicas that are just loading take a moment to end."""
    with _slow("ending the engine"):
        engine.stop()


@contextmanager
def _slow(what: str) -> Generator[None]:
    """An operator who waits is told for what."""
    from infer_console.cli.output import note

    slow = threading.Timer(SLOW_END_S, note, [what])
    slow.daemon = True
    slow.start()
    try:
        yield
    finally:
        slow.cancel()


def _show(collector: "Collector", engine: "EmbeddedEngine | None", arguments: Namespace) -> int:
    from infer_console.collector import STOP_TIMEOUT_S

    stop_s = STOP_TIMEOUT_S
    collector.start()  # connects while the screen is being imported
    try:
        from infer_console.ui.app import run_app

        status = run_app(
            collector,
            embedded=engine,
            read_only=collector.read_only,
            display=display_of(arguments),
            past=collector,
        )
        stop_s = _finish([collector], status)
        return status
    finally:
        collector.stop(stop_s)


def _finish(collectors: "Sequence[Collector]", status: int) -> float:
    """What is being exported is written before an operator has left; a signal waits for nothing. Returns for
    how long the collectors may take to end."""
    from infer_console.collector import STOP_TIMEOUT_S

    if status >= FIRST_SIGNAL:
        return SIGNALLED_STOP_S
    with _slow("writing what was exported"):
        for each in collectors:
            each.finish_exports()
    return STOP_TIMEOUT_S


def display_of(arguments: Namespace) -> "Display":
    from infer_console.ui.display import Display

    terminal = capabilities(os.environ, ascii_only=arguments.ascii)
    return Display(
        fps=arguments.fps,
        link=arguments.link,
        ascii_only=terminal.ascii_only,
        bell=arguments.bell,
        title=arguments.title,
        tmux=terminal.tmux,
    )


def _end_tidily() -> None:
    """Until the screen handles them itself: being told to end ends the engine too."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def _fps(given: str) -> float:
    try:
        fps = float(given)
    except ValueError:
        fps = 0.0
    if not 0.5 <= fps <= 30:
        raise ArgumentTypeError(f"{given!r} was given, allowed is a number from 0.5 to 30")
    return fps
