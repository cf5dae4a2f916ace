"""The line that says how far something long is."""

import io
from argparse import Namespace
from pathlib import Path

import pytest
from infer_console.cli import codes, recordings
from infer_console.cli import progress as progress_module
from infer_console.cli.progress import Progress
from support.incident import RECORDING


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_and_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = FakeTerminal()
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: 100.0)
    with Progress(terminal) as progress:
        progress.say("reading 5%")
        progress.say("reading 6%")  # so soon after, it is left out
    assert terminal.getvalue() == "\rreading 5%\r          \r"


def test_a_file_is_not() -> None:
    file = io.StringIO()
    with Progress(file) as progress:
        progress.say("reading 5%")
    assert file.getvalue() == ""


def test_an_export_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = FakeTerminal()
    monkeypatch.setattr("sys.stderr", terminal)
    given = Namespace(recording=str(RECORDING), file=str(tmp_path / "x.icr"), span=None, no_redact=False)
    assert recordings._export(given) == codes.OK  # pyright: ignore[reportPrivateUsage]
    assert "\rwriting 0%" in terminal.getvalue()
    assert "messages" in terminal.getvalue().splitlines()[-1]
