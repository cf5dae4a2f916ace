"""Verbs that the engine's own command does, where the server runs: this process becomes it."""

import os
import sys

from infer_console.cli import codes


def become_engine(verb: str, words: list[str], what: str, *, computes: bool = False) -> int:
    """``python -m infer_engine VERB WORDS…``; the exit code where what that takes is not installed: the
    engine where it ``computes``, else the gateway will do. ``what`` is made there."""
    from infer_console.cli.output import complain
    from infer_console.connect import engine_installed, gateway_installed

    if not (engine_installed() if computes else gateway_installed()):
        complain(f"{what} are made where the server runs; here the engine is not installed")
        return codes.ERROR
    sys.stderr.flush()
    command = [sys.executable, "-m", "infer_engine", verb, *words]
    return os.execv(sys.executable, command)
