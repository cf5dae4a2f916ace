"""Theme files: complete, understood, and told apart without colour."""

from pathlib import Path

import pytest
from infer_console.ui.themes import (
    DEFAULT,
    ThemeError,
    fitting_theme,
    load_theme,
    load_themes,
    themes_directory,
)
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.look import Look, Size
from infer_console.view.row import ROLES, TONES, plain
from support import pictures


def test_all_themes_load_and_are_complete() -> None:
    themes = load_themes()
    assert next(iter(themes)) == DEFAULT
    assert set(themes) == {"dark", "light", "colorblind", "ansi", "mono"}
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
    missing.write_text(good.replace('crit = "bold #ff6b63"\n', ""), encoding="utf-8")
    with pytest.raises(ThemeError, match=r"missing.toml: \[roles\] has no crit"):
        load_theme(missing)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(good.replace('crit = "bold #ff6b63"', 'crit = "loud"'), encoding="utf-8")
    with pytest.raises(ThemeError, match="crit = 'loud' is no style"):
        load_theme(wrong)
    with pytest.raises(ThemeError, match=r"none.toml"):
        load_theme(tmp_path / "none.toml")
