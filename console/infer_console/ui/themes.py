"""Themes: a TOML file each, giving every role and every ground a Rich style."""

from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import cast

import platformdirs
from rich.errors import StyleSyntaxError
from rich.style import Style

from infer_console.toml_file import TomlError, parse_toml, read_text
from infer_console.view.row import ROLES, TONES, Role, Tone

DEFAULT = "dark"
#: Where the terminal has 16 colours, or none at all.
SIXTEEN_COLORS, NO_COLORS = "ansi", "mono"
MOST_USER_THEMES = 64
MAX_FILE_BYTES = 100_000


class ThemeError(ValueError):
    """A theme file does not say what it has to; ``str()`` names file and key."""


@dataclass(frozen=True, slots=True)
class Theme:
    name: str
    styles: dict[tuple[Role, Tone], Style]
    path: Path = Path()
    #: Of its file, in nanoseconds, when it was read.
    written_ns: int = 0

    def style(self, role: Role, tone: Tone) -> Style:
        return self.styles[role, tone]


def themes_directory() -> Path:
    """Beside the installed package, or in the checkout."""
    installed = Path(str(files("infer_console"))) / "themes"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "themes"


def load_theme(path: Path) -> Theme:
    """Raise ThemeError for a file in which a role, a tone or a style is missing or not understood."""
    try:
        written_ns = path.stat().st_mtime_ns
        document = parse_toml(read_text(path, MAX_FILE_BYTES))
    except (OSError, TomlError) as error:
        raise ThemeError(f"{path.name}: {error}") from error
    roles = {role: _style(path, document, "roles", role) for role in ROLES}
    tones = {tone: _style(path, document, "tones", tone) for tone in TONES}
    over = {tone: _style(path, document, "over", tone) for tone in _given(path, document, "over")}
    # A role's own background wins: a selected block stands out on any ground. Of a ground on which few
    # colours can be read a theme says which one all roles have there.
    styles: dict[tuple[Role, Tone], Style] = {
        (role, tone): tones[tone] + roles[role] + over.get(tone, Style.null())
        for role in ROLES
        for tone in TONES
    }
    return Theme(path.stem, styles, path, written_ns)


def _given(path: Path, document: dict[str, object], table: str) -> list[Tone]:
    """The tones of a table that may be left out."""
    section = document.get(table, {})
    names = cast("dict[str, object]", section) if isinstance(section, dict) else {"": None}
    if unknown := [name for name in names if name not in TONES]:
        raise ThemeError(f"{path.name}: [{table}] {unknown[0]} is none of {', '.join(TONES)}")
    return [tone for tone in TONES if tone in names]


def _style(path: Path, document: dict[str, object], table: str, name: str) -> Style:
    section = document.get(table)
    text = section.get(name) if isinstance(section, dict) else None
    if not isinstance(text, str):
        raise ThemeError(f"{path.name}: [{table}] has no {name}")
    try:
        return Style.parse(text)
    except StyleSyntaxError as error:
        raise ThemeError(f"{path.name}: [{table}] {name} = {text!r} is no style: {error}") from error


def user_themes_directory() -> Path:
    return Path(platformdirs.user_config_dir("infer-console")) / "themes"


def load_themes() -> dict[str, Theme]:
    """The themes that come with the console by name, the default first."""
    paths = sorted(themes_directory().glob("*.toml"), key=lambda path: (path.stem != DEFAULT, path.stem))
    return {path.stem: load_theme(path) for path in paths}


def load_user_themes(directory: Path) -> tuple[dict[str, Theme], list[str]]:
    """A user's own themes by name, and what is wrong with those that cannot be used. One that has the name of
    another takes its place."""
    themes: dict[str, Theme] = {}
    troubles: list[str] = []
    for path in sorted(directory.glob("*.toml"))[:MOST_USER_THEMES]:
        try:
            themes[path.stem] = load_theme(path)
        except ThemeError as error:
            troubles.append(str(error))
    return themes, troubles


def reloaded(theme: Theme) -> Theme | None:
    """The theme anew where its file was written since; None where it was not, or is not there. Raise
    ThemeError for one that is not understood now."""
    return load_theme(theme.path) if at_present(theme) not in (None, theme) else None


def at_present(theme: Theme) -> Theme | None:
    """The same theme, as if read from the file as it is now; None where that is gone."""
    try:
        return replace(theme, written_ns=theme.path.stat().st_mtime_ns)
    except OSError:
        return None


def fitting_theme(color_system: str | None, no_color: bool) -> str:
    """The theme to start with on such a terminal."""
    if no_color or color_system is None:
        return NO_COLORS
    return SIXTEEN_COLORS if color_system == "standard" else DEFAULT
