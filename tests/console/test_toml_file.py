"""What an operator's own files may have become: the console says it and goes on, whatever it is."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from infer_console.cli.serve import read_config
from infer_console.contexts import ContextsError, read_contexts
from infer_console.habits.history import read_history
from infer_console.habits.keymap import KeymapError, read_keymap
from infer_console.habits.views import ViewError, read_views
from infer_console.ui.themes import ThemeError, load_theme
from infer_engine.settings import SettingsError

READERS: dict[type[Exception], Callable[[Path], object]] = {
    KeymapError: read_keymap,
    ViewError: read_views,
    ContextsError: read_contexts,
    ThemeError: load_theme,
    SettingsError: lambda path: read_config(str(path)),
}


@pytest.mark.parametrize("text", [b"a = " + b"[" * 20_000, b"a = " + b"9" * 5_000, b"\xff\xfe\x00", b"a = ]"])
def test_what_no_toml_reader_survives_is_said(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(text)
    for error, reader in READERS.items():
        with pytest.raises(error, match=r"mine\.toml"):
            reader(path)


def test_no_pipe_is_waited_for_and_no_file_is_read_without_end(tmp_path: Path) -> None:
    pipe, endless = tmp_path / "pipe", tmp_path / "endless"
    os.mkfifo(pipe)
    endless.symlink_to("/dev/zero")
    assert read_keymap(pipe) == read_views(pipe) == {}
    assert read_history(pipe) == read_history(endless) == []
    for error in (KeymapError, ViewError, ContextsError, ThemeError):
        with pytest.raises(error, match="larger than"):
            READERS[error](endless)
