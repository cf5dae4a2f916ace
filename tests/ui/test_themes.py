"""Theme files: complete, understood, and told apart without colour."""

import os
from pathlib import Path

import pytest
from infer_console.terminal.legible import LEAST_CONTRAST, downgraded
from infer_console.terminal.legible import contrast as contrast_of
from infer_console.terminal.pen import pen_of
from infer_console.ui.themes import (
    DEFAULT,
    ThemeError,
    fitting_theme,
    load_theme,
    load_themes,
    load_user_themes,
    reloaded,
    themes_directory,
)
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.look import Look, Size
from infer_console.view.row import ROLES, TONES, plain
from rich.color import Color, ColorSystem
from rich.style import Style
from support import pictures
from support.pilot import drive


def test_all_themes_load_and_are_complete() -> None:
    themes = load_themes()
    assert next(iter(themes)) == DEFAULT
    assert set(themes) == {"dark", "light", "contrast", "colorblind", "ansi", "mono"}
    for theme in themes.values():
        for role in ROLES:
            for tone in TONES:
                assert theme.style(role, tone) is not None


def test_mono_uses_no_colour_and_ansi_only_the_terminals() -> None:
    themes = load_themes()
    for style in themes["mono"].styles.values():
        assert style.color is None or style.color.is_default
        assert style.bgcolor is None or style.bgcolor.is_default
    for style in themes["ansi"].styles.values():
        for color in (style.color, style.bgcolor):
            assert color is None or color.is_system_defined or color.is_default


def test_state_is_told_without_colour() -> None:
    text = "\n".join(
        plain(row) for row in fleet_screen(pictures.incident(), Look(), Size(120, 36), pictures.NOW)
    )
    for word in ("drain 31/37", "load 61%", "BAD", "LIVE", "▲", "△", "PREEMPT", "MOVE"):
        assert word in text


@pytest.mark.parametrize(
    ("color_system", "no_color", "name"),
    [
        ("truecolor", False, "dark"),
        ("256", False, "dark"),
        ("standard", False, "ansi"),
        (None, False, "mono"),
        ("truecolor", True, "mono"),
    ],
)
def test_a_theme_that_fits_the_terminal(color_system: str | None, no_color: bool, name: str) -> None:
    assert fitting_theme(color_system, no_color) == name


def test_a_broken_theme_is_named(tmp_path: Path) -> None:
    good = (themes_directory() / "dark.toml").read_text(encoding="utf-8")
    missing = tmp_path / "missing.toml"
    missing.write_text(good.replace('crit = "bold #ff7971"\n', ""), encoding="utf-8")
    with pytest.raises(ThemeError, match=r"missing.toml: \[roles\] has no crit"):
        load_theme(missing)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(good.replace('crit = "bold #ff7971"', 'crit = "loud"'), encoding="utf-8")
    with pytest.raises(ThemeError, match="crit = 'loud' is no style"):
        load_theme(wrong)
    over = tmp_path / "over.toml"
    over.write_text(good + '[over]\nroof = "white"\n')
    with pytest.raises(ThemeError, match=r"\[over\] roof is none of plain, bar, production"):
        load_theme(over)
    with pytest.raises(ThemeError, match=r"none.toml"):
        load_theme(tmp_path / "none.toml")


#: Told by their shape; they need to be seen, not read. Rules and free cells are meant to stand back.
GLYPHS = {"used": 3.0, "cached": 3.0, "spark": 3.0, "pending": 3.0, "rule": 1.5, "free": 1.5}


def contrast(style: Style) -> float:
    assert style.color is not None
    assert style.bgcolor is not None
    return contrast_of(style.color, style.bgcolor)


@pytest.mark.parametrize(
    ("name", "least"), [("dark", 4.5), ("light", 4.5), ("colorblind", 4.5), ("contrast", 7.0)]
)
def test_text_can_be_read_on_every_ground(name: str, least: float) -> None:
    theme = load_themes()[name]
    low = {
        (role, tone): round(ratio, 2)
        for role in ROLES
        for tone in TONES
        if role not in GLYPHS and (ratio := contrast(theme.style(role, tone))) < least
    }
    assert not low
    for role, seen in GLYPHS.items():
        for tone in ("plain", "cursor", "dialog"):
            assert contrast(theme.style(role, tone)) >= seen, (role, tone)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["dark", "light", "colorblind", "contrast"])
def test_it_can_be_read_where_the_terminal_has_256_colours(name: str) -> None:
    theme, colors = load_themes()[name], ColorSystem.EIGHT_BIT
    for role in ROLES:
        for tone in TONES:
            style = theme.style(role, tone)
            assert style.color is not None
            assert style.bgcolor is not None
            if role not in GLYPHS:
                shown = downgraded(style.color, style.bgcolor, colors)
                assert contrast_of(shown, style.bgcolor.downgrade(colors)) >= LEAST_CONTRAST, (role, tone)
                assert ";".join(shown.get_ansi_codes()) == pen_of(style, colors).foreground
    grounds = {theme.style("text", tone).bgcolor for tone in ("production", "bar", "plain")}
    assert len({ground.downgrade(colors).number for ground in grounds if ground is not None}) >= 2


@pytest.mark.parametrize("red", [(128, 0, 0), (170, 0, 0), (205, 0, 0)])
def test_what_stands_on_productions_ground_can_be_read_in_sixteen_colours(red: tuple[int, int, int]) -> None:
    """Whichever red the terminal takes; its white is white."""
    theme = load_themes()["ansi"]
    white = Color.from_rgb(255, 255, 255)
    for role in ROLES:
        style = theme.style(role, "production")
        assert (style.color, style.bgcolor) == (Color.parse("bright_white"), Color.parse("red")), role
    assert contrast_of(white, Color.from_rgb(*red)) >= LEAST_CONTRAST
    assert theme.style("ok", "plain").color == Color.parse("green")


def test_a_users_theme_takes_the_place_of_ours_and_a_broken_one_is_named(tmp_path: Path) -> None:
    text = (themes_directory() / "dark.toml").read_text()
    (tmp_path / "dark.toml").write_text(text.replace("on #0f1419", "on #000001"))
    (tmp_path / "night.toml").write_text(text)
    (tmp_path / "broken.toml").write_text("[tones]\n")
    themes, troubles = load_user_themes(tmp_path)
    assert set(themes) == {"dark", "night"}
    ground = themes["dark"].style("text", "plain").bgcolor
    assert ground is not None
    assert ground.get_truecolor() == (0, 0, 1)
    assert len(troubles) == 1
    assert "broken.toml" in troubles[0]


def test_no_directory_of_themes_is_no_trouble(tmp_path: Path) -> None:
    assert load_user_themes(tmp_path / "none") == ({}, [])


def test_a_theme_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    text = (themes_directory() / "dark.toml").read_text()
    file.write_text(text)
    theme = load_theme(file)
    assert reloaded(theme) is None
    file.write_text(text.replace("on #0f1419", "on #000001"))
    os.utime(file, ns=(1, 1))
    again = reloaded(theme)
    assert again is not None
    assert again.style("text", "plain") != theme.style("text", "plain")
    assert reloaded(again) is None
    file.write_text("no theme")
    os.utime(file, ns=(1, 2))
    with pytest.raises(ThemeError, match=r"own.toml"):
        reloaded(again)
    file.unlink()
    assert reloaded(again) is None


async def test_a_theme_is_followed_while_the_console_runs(tmp_path: Path) -> None:
    async with drive(pictures.quiet()) as driven:
        file = tmp_path / "own.toml"
        text = (themes_directory() / "dark.toml").read_text()
        file.write_text(text)
        driven.app.theming.put(load_theme(file))
        file.write_text(text.replace("on #0f1419", "on #000001"))
        os.utime(file, ns=(1, 7))
        driven.app._heartbeat()
        ground = driven.app.theme_now.style("text", "plain").bgcolor
        assert ground is not None
        assert ground.get_truecolor() == (0, 0, 1)
        file.write_text("not a theme")
        os.utime(file, ns=(1, 8))
        driven.app._heartbeat()
        await driven.wait_for("theme own.toml")


async def test_a_broken_theme_is_said_at_the_start_beside_other_troubles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    themes = tmp_path / "infer-console/themes"
    themes.mkdir(parents=True)
    (themes / "mine.toml").write_text("[tones]\n")
    (themes.parent / "keys.toml").write_text("no keymap")
    async with drive(pictures.quiet()) as driven:
        await driven.wait_for("the usual keys are used")
        assert "theme mine.toml" in str(driven.app.notice)
