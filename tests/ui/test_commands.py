"""The command line, the palette, keymaps and saved views, through the real app."""

import resource
from pathlib import Path
from xml.etree import ElementTree

import pytest
from infer_console.habits.history import history_path, read_history
from infer_console.habits.views import SavedView, ViewError, save_view
from infer_console.ui.screenshot import svg_of, write_screenshot
from infer_console.ui.themes import DEFAULT, load_themes
from infer_console.view.look import MAX_FILTER
from infer_console.view.row import Span
from support import pictures
from support.pilot import drive
from textual import events


@pytest.fixture(autouse=True)
def _own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


async def test_a_command_opens_the_plan_and_applies_nothing() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("colon")
        await driven.type("dra")
        await driven.press("tab")
        await driven.type("r2 mode=wait")
        assert ":drain r2 mode=wait▏" in driven.lines[-1]
        assert "[mode=]" in driven.lines[-2]
        await driven.press("enter")
        await driven.wait_for("Drain r2")
        assert driven.collector.applied == []
        assert driven.app.look.filter == ""
        await driven.press("escape")
        assert read_history(history_path()) == ["drain r2 mode=wait"]
        await driven.press("colon", "up", "enter")
        await driven.wait_for("Drain r2")


@pytest.mark.parametrize("width", [40, 120])
async def test_a_wrong_word_is_told_and_the_line_stays(width: int) -> None:
    async with drive(pictures.incident(), width, 20) as driven:
        await driven.press("colon")
        await driven.type("drain r2 mode=wiat")
        await driven.press("enter")
        await driven.wait_for("wiat")
        shown = " ".join(" ".join(driven.lines).split())
        assert "'wiat' was given" in shown
        assert ":drain r2 mode=wiat" in driven.lines[-1]
        assert len(driven.lines) == 20
        await driven.show(pictures.incident())
        await driven.press("escape")
        assert "wiat" not in driven.text


async def test_screens_filters_and_orders() -> None:
    async with drive(pictures.incident()) as driven:

        async def do(line: str) -> None:
            await driven.press("colon")
            await driven.type(line)
            await driven.press("enter")

        await do("sort kv")
        await do("filter r[25]")
        look = driven.app.look
        assert (look.fleet_sort, look.filter) == ("kv", "r[25]")
        await do("columns -wait +hit")
        assert "did you mean" in driven.text or "was given" in driven.text
        await driven.press("ctrl+u")
        await driven.press("escape")
        await do("columns -oldest")
        assert " OLDEST " not in driven.text
        await do("save night")
        await do("columns")
        await do("filter")
        await do("replica r5")
        await driven.wait_for("ROSTER")
        assert look.replica == "r5"
        await do("view night")
        await driven.wait_for("filter: r[25]")
        assert " OLDEST " not in driven.text
        await do("theme light")
        assert driven.app.theme_now.name == "light"
        await do("diff r1 r2")
        await driven.wait_for("What differs")
        await driven.press("x")
        await do("q")
        assert driven.app.return_code == 0


def flat(text: str) -> str:
    """What stands in the box, as one line."""
    rows = [row.split("│")[1] for row in text.splitlines() if row.count("│") == 2]
    return " ".join(" ".join(rows).split())


async def test_the_palette_does_and_hands_on() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("ctrl+p")
        told = "hide (-X) columns of this screen's table; without a word: as they come"
        assert told not in flat(driven.text)
        for _ in range(10):
            await driven.press("down")
        assert told in flat(driven.text)  # of the chosen one, on two rows
        await driven.press("escape", "ctrl+p")
        await driven.wait_for("Commands")
        await driven.type("doct")
        await driven.press("enter")
        await driven.wait(
            "the Doctor screen", lambda: driven.screen is not None and "FINDINGS" in driven.text.upper()
        )
        await driven.press("ctrl+p")
        await driven.type("diff")
        await driven.press("enter")
        await driven.wait_for(":diff")
        await driven.press("escape", "1")
        await driven.press("ctrl+p")
        await driven.type("drr2")
        await driven.press("enter")
        await driven.wait_for("Drain r2")
        assert driven.collector.applied == []


async def test_changed_keys(tmp_path: Path) -> None:
    config = tmp_path / "config" / "infer-console"
    config.mkdir(parents=True)
    (config / "keys.toml").write_text('[keys]\npause = ["f5"]\ndrain = ["Z"]\n')
    async with drive(pictures.incident(), 200, 50) as driven:
        assert "f5 pause" in driven.lines[-1]
        await driven.press("p")
        assert driven.app.time.is_live
        await driven.press("f5")
        assert not driven.app.time.is_live
        await driven.press("f5", "D")
        assert "Drain" not in driven.text
        await driven.press("Z")
        await driven.wait_for("Drain r")
        assert "Z again applies" in driven.text


async def test_a_wrong_keymap_is_told_and_the_usual_keys_are_used(tmp_path: Path) -> None:
    config = tmp_path / "config" / "infer-console"
    config.mkdir(parents=True)
    (config / "keys.toml").write_text('[keys]\n\npuase = ["f5"]\n')
    async with drive(pictures.incident()) as driven:
        assert "keys.toml:3" in driven.text
        assert "did you mean pause?" in driven.text
        await driven.press("p")
        assert not driven.app.time.is_live


def only(directory: Path, pattern: str) -> str:
    """The one file of that name."""
    (path,) = directory.glob(pattern)
    return path.read_text(encoding="utf-8")


async def test_a_screenshot_is_what_is_on_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    named = tmp_path / "shot.txt"
    async with drive(pictures.incident(), 120, 36) as driven:

        async def do(line: str) -> None:
            await driven.press("colon")
            await driven.type(line)
            await driven.press("enter")

        await do(f"screenshot {named.name}")
        await driven.wait_for("shot.txt: ")
        shown = named.read_text(encoding="utf-8").splitlines()
        assert len(shown) == 36
        assert shown[1:-1] == driven.lines[1:-1]
        assert ":screenshot" not in shown[-1], "the command line is gone from it"
        assert named.stat().st_mode & 0o777 == 0o600
        await do(f"screenshot {named.name}")
        await driven.wait_for("File exists")
        await do("screenshot shot.png")
        await driven.wait_for("ends in .svg or .txt")
        await driven.press("escape")
        for line in ("screenshot ~no-such-user/shot.svg", "export -10s..now ~no-such-user/x.icr"):
            await do(line)
            await driven.wait_for("Could not determine home directory")
            await driven.press("escape")
        await do("screenshot")
        await driven.wait_for(".svg: ")
        image = ElementTree.fromstring(only(tmp_path, "eu-west-chat-70b-*.svg"))
        words = {element.text for element in image.iter("{http://www.w3.org/2000/svg}text")}
        assert {"TENANT", "acme", "99,840"} <= words
        assert float(image.attrib["viewBox"].split()[2]) == 120 * 8.4 + 16
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        state = tmp_path / "state" / "infer-console"
        await do("screenshot")
        await driven.wait("the file", lambda: list(state.glob("*.svg")))
        only(state, "eu-west-chat-70b-*.svg")
        monkeypatch.setenv("XDG_STATE_HOME", str(named))
        await do("screenshot")
        await driven.wait_for("no screenshot: ")
        await driven.press("e")
        await driven.wait_for("not exported: ")


def test_what_the_disk_does_not_take_leaves_no_file_behind(tmp_path: Path) -> None:
    shot, views = tmp_path / "shot.txt", tmp_path / "views.toml"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_screenshot(shot, [(Span("x" * 100, cells=100),)], load_themes()[DEFAULT])
        with pytest.raises(ViewError, match=r"views\.toml: File too large$"):
            save_view(views, "mine", SavedView())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_text_of_others_is_no_markup_in_a_screenshot() -> None:
    row = (Span('<script>"&', cells=10), Span("漢字 <b>", "content", cells=8))
    image = ElementTree.fromstring(svg_of([row], load_themes()[DEFAULT]))
    words = [element.text for element in image.iter("{http://www.w3.org/2000/svg}text")]
    assert words == ['<script>"&', "漢字 <b>"]


async def test_what_is_pasted_is_typed_where_text_is_and_is_no_key_elsewhere() -> None:
    async with drive(pictures.incident()) as driven:

        async def paste(text: str) -> None:
            pasted = events.Paste(text)
            pasted.set_sender(driven.app)
            driver = driven.app._driver
            assert driver is not None
            driver.send_message(pasted)
            await driven.settle()

        await driven.press("colon")
        await paste("drain r2\x1b\x00 reason=q\nq")
        await driven.press("!")
        assert ":drain r2 reason=q!▏" in driven.lines[-1]
        assert driven.app.notice == "of what was pasted the first line is taken"
        await driven.press("enter")
        await driven.wait_for("again applies")
        await paste("D" * 10)
        await driven.press("escape")
        assert driven.collector.applied == []
        await paste("q2")
        await driven.press("slash")
        await paste("r" * 100_000)
        assert driven.app.look.filter == "r" * MAX_FILTER
        await driven.press("escape", "ctrl+p")
        await paste("drain")
        assert "drain" in driven.text
