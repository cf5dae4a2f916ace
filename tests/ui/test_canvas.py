"""What is handed to the terminal: nothing for a tick without change, one row for one changed row."""

import dataclasses
import gc

import msgspec
from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.terminal.output_filter import OutputFilter
from infer_console.ui.output import SegmentFilter
from infer_console.ui.screens.fleet import FleetScreen
from infer_console.ui.screens.overlay import HelpScreen
from rich.console import Console
from rich.style import Style
from support import pictures
from support.pilot import Driven, drive
from textual._styles_cache import StylesCache
from textual.strip import Strip


def with_replica(picture: Picture, id: str, **changes: object) -> Picture:
    replica = picture.replicas[id]
    status = msgspec.structs.replace(replica.status, **changes)
    changed = ReplicaPicture(status, replica.rows, replica.order, replica.blocks, at=replica.at)
    return dataclasses.replace(picture, replicas=picture.replicas | {id: changed})


def pending_update(driven: Driven) -> str:
    """What Textual's compositor would write for the dirty regions."""
    compositor = driven.screen._compositor
    update = compositor.render_update()
    return "" if update is None else update.render_segments(driven.app.console)


async def test_a_tick_without_change_repaints_nothing() -> None:
    async with drive(pictures.incident()) as driven:
        before = driven.screen.canvas.repainted_rows
        for _ in range(5):
            await driven.show(dataclasses.replace(pictures.incident()))
        assert driven.screen.canvas.repainted_rows == before


async def test_one_changed_row_is_one_row_repainted() -> None:
    async with drive(pictures.incident()) as driven:
        canvas = driven.screen.canvas
        strips = [canvas.render_line(y) for y in range(36)]
        before = canvas.repainted_rows
        await driven.show(with_replica(pictures.incident(), "r6", tokens_per_s=1_111.0))
        assert canvas.repainted_rows == before + 1
        assert "1,111" in driven.text
        changed = [y for y in range(36) if canvas.render_line(y) is not strips[y]]
        assert len(changed) == 1
        assert "r6" in driven.lines[changed[0]]


async def test_one_changed_row_writes_one_row() -> None:
    async with drive(pictures.incident()) as driven:
        driven.app.batch_update()
        await driven.pilot.pause()
        driven.screen._compositor._dirty_regions.clear()
        canvas = driven.screen.canvas
        picture = with_replica(pictures.incident(), "r6", tokens_per_s=1_111.0)
        driven.collector._picture = picture
        assert driven.screen.paint() == 1
        y = next(y for y, line in enumerate(driven.lines) if "1,111" in line)
        driven.screen._compositor.update_widgets({canvas})
        written = pending_update(driven)
        assert "1,111" in written
        assert written.count("r6") == 1
        assert not any(f"r{number}" in written for number in (0, 1, 4))
        assert f"\x1b[{y + 1};1H" in written


async def test_a_new_size_and_a_theme_repaint_all() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.pilot.resize_terminal(80, 24)
        await driven.wait("80 columns", lambda: len(driven.screen.canvas.render_line(0).text) == 80)
        before = driven.screen.canvas.repainted_rows
        await driven.press("t")
        assert driven.screen.canvas.repainted_rows >= before + 24
        await driven.wait_for("theme:")


def caches() -> int:
    """Of rendered lines, one for each widget."""
    gc.collect()
    return sum(issubclass(type(each), StylesCache) for each in gc.get_objects())


async def test_dialogs_that_were_closed_hold_nothing_that_was_rendered() -> None:
    async with drive(pictures.incident()) as driven:
        before = caches()
        for _ in range(4):
            await driven.press("question_mark")
            await driven.wait("the help", lambda: isinstance(driven.app.screen, HelpScreen))
            await driven.press("escape")
            await driven.wait("the fleet", lambda: isinstance(driven.app.screen, FleetScreen))
        await driven.wait("as much as before", lambda: caches() <= before)


async def test_only_the_screen_that_is_shown_holds_what_was_rendered() -> None:
    async with drive(pictures.incident()) as driven:
        fleet = driven.screen
        await driven.press("2")
        await driven.wait("another screen", lambda: driven.app.screen is not fleet)
        await driven.wait("nothing held", lambda: not fleet.canvas.rows)
        assert fleet.canvas.render_line(0).text.isspace()
        assert driven.screen.canvas.rows
        await driven.press("1")
        await driven.wait("the fleet", lambda: driven.app.screen is fleet)
        await driven.wait_for("r6")


def test_the_last_filter_takes_out_what_a_view_let_through() -> None:
    output_filter = OutputFilter()
    style = Style(color="red", link="file:///etc/passwd\x1b\\")
    strip = Strip.blank(3).join([Strip.blank(0)])
    segments = [*strip, *Strip([segment("\x1b[2Jx\u202e", style)])]
    cleaned = SegmentFilter(output_filter).apply(segments, None)  # pyright: ignore[reportArgumentType]
    rendered = Strip(cleaned).render(Console(force_terminal=True, color_system="truecolor"))
    assert output_filter.caught == 2
    assert "\x1b[2J" not in rendered
    assert "\x1b]8" not in rendered
    assert "\u202e" not in rendered


def segment(text: str, style: Style):
    from rich.segment import Segment

    return Segment(text, style)


async def test_every_widget_passes_the_last_filter() -> None:
    async with drive(pictures.incident()) as driven:
        assert driven.app.get_line_filters()[-1] is driven.app._line_filter
        assert driven.app.output_filter.caught == 0
