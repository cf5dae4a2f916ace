"""A terminal that is behind costs frames, never the event loop."""

import inspect
import io
from types import SimpleNamespace

import pytest
from infer_console.ui.backpressure import DEEP, is_behind, queued_writes
from infer_console.ui.screens import base
from infer_console.view.row import Row
from support import pictures
from support.pilot import drive
from textual.drivers import _writer_thread, linux_driver
from textual.events import Key


def test_textual_still_has_what_is_looked_at() -> None:
    writer = _writer_thread.WriterThread(io.StringIO())
    app = SimpleNamespace(_driver=SimpleNamespace(_writer_thread=writer))
    assert queued_writes(app) == 0
    for _ in range(DEEP + 1):
        writer.write("frame")
    assert queued_writes(app) == DEEP + 1
    assert is_behind(app)
    assert _writer_thread.MAX_QUEUED_WRITES > 3 * DEEP
    assert "self._writer_thread = WriterThread(" in inspect.getsource(linux_driver.LinuxDriver)


def test_without_a_writer_nothing_is_behind() -> None:
    assert not is_behind(SimpleNamespace())
    assert not is_behind(SimpleNamespace(_driver=SimpleNamespace(_writer_thread=None)))


async def test_frames_are_skipped_and_the_next_one_shows_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async with drive(pictures.incident()) as driven:
        monkeypatch.setattr(base, "is_behind", lambda app: True)
        await driven.show(pictures.small())
        assert "RUN 186" in driven.text
        assert driven.app.look.skipped_frames > 0
        monkeypatch.setattr(base, "is_behind", lambda app: False)
        driven.app.frame()
        assert "RUN 9" in driven.text


async def test_wake_ups_coalesce() -> None:
    async with drive(pictures.incident()) as driven:
        sent: list[object] = []
        real = driven.app.post_message
        driven.app.post_message = lambda message: (sent.append(message), real(message))[1]  # type: ignore[method-assign]
        for _ in range(50):
            driven.collector.show(pictures.small())
        assert len(sent) == 1
        await driven.wait_for("RUN 9")


async def test_keys_that_come_at_once_are_done_before_what_they_change_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("G")
        drawn: list[int] = []
        pressed: list[str] = []
        rows_now, press = base.PaintedScreen.rows_now, base.ConsoleScreen.press

        async def pressing(screen: base.ConsoleScreen, key: Key) -> None:
            pressed.append(key.key)
            await press(screen, key)

        def drawing(screen: base.PaintedScreen) -> list[Row]:
            drawn.append(len(pressed))
            return rows_now(screen)

        monkeypatch.setattr(base.ConsoleScreen, "press", pressing)
        monkeypatch.setattr(base.PaintedScreen, "rows_now", drawing)
        for key in ("k", "j") * 40:
            driven.app.post_message(Key(key, key))
        await driven.wait("a picture of all that was pressed", lambda: drawn and drawn[-1] == 80)
        # A tick of the clock may draw meanwhile; one for each key would be eighty.
        assert len(drawn) < 20
