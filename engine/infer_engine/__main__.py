"""``python -m infer_engine``: the engine server, and fetching its model. Data on stdout, the rest on stderr.

Exit codes: 0 done, 1 it failed (one line on stderr says why), 2 a wrong setting or usage, 130 interrupted.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, cast

from infer_engine import replica_command, token_command
from infer_engine.benchmark.options import add_options
from infer_engine.caller import Caller
from infer_engine.key_command import add_options as key_options
from infer_engine.model.errors import ModelError
from infer_engine.settings import DEFAULT_MODEL, ServerSettings, SettingsError, validate
from infer_engine.telemetry.logs import configure_logging

#: Progress without a terminal: one line per this share of the work.
PLAIN_STEP = 0.1
BAR_CELLS = 30
REPAINT_S = 0.1


def main(arguments: list[str] | None = None) -> int:
    # A console's secret in our environment is none of our business, nor of what we start.
    os.environ.pop("INFER_CONSOLE_TOKEN", None)
    options = _parser().parse_args(arguments)
    try:
        if options.verb == "serve":
            called = Caller() if options.called is None else Caller(options.called, by_options=True)
            return _serve(options.settings, options.lifeline, called)
        if options.verb == "key":
            from infer_engine.key_command import run as make_key

            return make_key(options)
        if options.verb == "token":
            return token_command.run(options)
        if options.verb == "replica":
            return replica_command.run(options)
        if options.verb == "bench":
            from infer_engine.benchmark.run import run

            return run(options)
        return _fetch(options.model, prepare=not options.file_only, lifeline=options.lifeline)
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infer_engine", description="The engine server, and fetching its model."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    serve = verbs.add_parser("serve", help="run the engine server")
    serve.add_argument("--settings", default="{}", metavar="JSON", help="settings as one JSON object")
    serve.add_argument("--lifeline", action="store_true", help="stop when stdin ends (the parent died)")
    serve.add_argument("--called", metavar="NAME", help="the command, with options, that this is to its user")
    fetch = verbs.add_parser("fetch", help="fetch and prepare the model; its path goes to stdout")
    fetch.add_argument(
        "--model", default=DEFAULT_MODEL, help="a known name, a GGUF file or a Hugging Face directory"
    )
    fetch.add_argument("--lifeline", action="store_true", help="stop when stdin ends (the parent died)")
    fetch.add_argument(
        "--file-only", action="store_true", help="leave preparing the weights to the first start"
    )
    key_options(verbs.add_parser("key", help="make API keys of the gateway"))
    replica_command.add_options(
        verbs.add_parser("replica", help="have a replica of this machine join a server")
    )
    bench = verbs.add_parser("bench", help="measure what the engine reaches on this machine")
    add_options(bench)
    token = verbs.add_parser("token", help="make, list and revoke tokens of the control API")
    token_command.add_options(token)
    return parser


def _fail(message: str, code: int = 1) -> int:
    print(f"infer-engine: {message}", file=sys.stderr)
    return code


def _serve(settings_json: str, lifeline: bool, caller: Caller) -> int:
    def fail(message: str, code: int, setting: str | None = None) -> int:
        print(caller.error(message, setting), file=sys.stderr)
        return code

    def say(line: str) -> None:
        if caller.by_options:
            print(line, file=sys.stderr, flush=True)

    try:
        try:
            given = json.loads(settings_json)
        except (ValueError, RecursionError) as error:
            raise SettingsError(f"settings: not valid JSON: {error}") from error
        if not isinstance(given, dict):
            raise SettingsError(f"settings: expected a JSON object, got {type(given).__name__}")
        values = cast("dict[str, Any]", given)
        settings: ServerSettings = validate(ServerSettings, values)
    except SettingsError as error:
        return fail(str(error), 2)
    # Imported late: a wrong setting is answered at once.
    from infer_engine.server import serve
    from infer_engine.start_error import StartError

    configure_logging(logging.INFO)
    try:
        return asyncio.run(
            serve(settings, listen_is_default="listen" not in values, lifeline=lifeline, say=say)
        )
    except SettingsError as error:
        return fail(str(error), 2)
    except StartError as error:
        return fail(str(error), 1, error.setting)


def _fetch(model: str, *, prepare: bool, lifeline: bool) -> int:
    from infer_engine.model.store import resolve
    from infer_engine.replica.lifeline import hold

    # Leave by an exception: what fetching started ends with it.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    if lifeline:
        hold(sys.stdin.fileno(), lambda: os.kill(os.getpid(), signal.SIGTERM))
    progress = _Progress()
    try:
        path = resolve(model, progress)
        if prepare:
            _prepare_weights(path, progress)
    except ModelError as error:
        progress.end()
        return _fail(str(error))
    progress.end()
    print(path)
    return 0


def _prepare_weights(path: Path, progress: "_Progress") -> None:
    """Make the file that replicas map into memory, so that the first start of the server is quick."""
    # Here torch is loaded, which takes seconds: only for this, and never in the server's process.
    from infer_engine.model.architecture import read_architecture
    from infer_engine.model.source import open_source
    from infer_engine.model.weights import load_weights

    source = open_source(path)
    load_weights(source, read_architecture(source), progress)


class _Progress:
    """A bar that repaints itself on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._is_tty = sys.stderr.isatty()
        self._what: str | None = None
        self._fraction = 0.0
        self._painted_s = 0.0
        self._open_line = False

    def __call__(self, what: str, fraction: float | None) -> None:
        changed = what != self._what
        if self._is_tty:
            self._paint(what, fraction, changed)
        elif changed or (fraction is not None and fraction - self._fraction >= PLAIN_STEP):
            print(what if fraction is None else f"{what}: {fraction:.0%}", file=sys.stderr, flush=True)
            self._fraction = fraction or 0.0
        self._what = what

    def end(self) -> None:
        if self._open_line:
            print(file=sys.stderr)
            self._open_line = False

    def _paint(self, what: str, fraction: float | None, changed: bool) -> None:
        now_s = time.monotonic()
        if changed:
            self.end()
        elif now_s - self._painted_s < REPAINT_S and fraction != 1.0:
            return
        self._painted_s = now_s
        if fraction is None:
            line = f"{what} …"
        else:
            filled = round(fraction * BAR_CELLS)
            line = f"{what} [{'█' * filled}{'░' * (BAR_CELLS - filled)}] {fraction:4.0%}"
        print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)
        self._open_line = True


if __name__ == "__main__":
    sys.exit(main())
