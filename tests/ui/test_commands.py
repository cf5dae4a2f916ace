"""The command line, the palette, keymaps and saved views, through the real app."""

from pathlib import Path

import pytest
from infer_console.habits.history import history_path, read_history
from support import pictures
from support.pilot import drive


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


async def test_the_palette_does_and_hands_on() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("ctrl+p")
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
