"""Saved views: a screen with its order, filter, lens and columns under a name, in ``views.toml``.

Only the tables of the view that is saved are written anew; the rest of the file, comments too, stays.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import platformdirs

from infer_console.habits.written import write_private
from infer_console.toml_file import TomlError, parse_toml, read_text
from infer_console.view.columns import ColumnChoice
from infer_console.view.look import (
    MAX_FILTER,
    FleetSort,
    Lens,
    Look,
    RequestSort,
    RosterSort,
    ScreenName,
    Shown,
)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
MOST_VIEWS = 64
MAX_FILE_BYTES = 1_000_000
HEAD = "# Views of infer-console, as :save keeps them.\n"


class ViewError(ValueError):
    """``str()`` names the file and what is wrong, or what name is allowed."""


class SavedColumns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    shown: list[str] = []
    hidden: list[str] = []


class SavedView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """What is left out is as it comes."""

    screen: ScreenName = "fleet"
    filter: str = ""
    fleet_sort: FleetSort = "worst"
    roster_sort: RosterSort = "batch"
    request_sort: RequestSort = "state"
    shown: Shown = "all"
    lens: Lens = "owner"
    columns: dict[str, SavedColumns] = {}


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    views: dict[str, SavedView] = {}


def views_path() -> Path:
    return Path(platformdirs.user_config_dir("infer-console")) / "views.toml"


def read_views(path: Path) -> dict[str, SavedView]:
    """By name; nothing where there is no file. Raise ViewError for one that is not understood."""
    try:
        text = read_text(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return {}
    except TomlError as error:
        raise ViewError(f"{path}: {error}") from error
    return _views_of(text, path)


def _views_of(text: str, path: Path) -> dict[str, SavedView]:
    if len(text) > MAX_FILE_BYTES:
        raise ViewError(f"{path}: more than {MAX_FILE_BYTES:,} characters")
    try:
        return msgspec.convert(parse_toml(text), _File).views
    except (TomlError, msgspec.ValidationError) as error:
        raise ViewError(f"{path}: {error}") from error


def save_view(path: Path, name: str, view: SavedView) -> dict[str, SavedView]:
    """All views with this one. Raise ViewError for a name that is none, a file that is not understood, and
    where it cannot be written; the file is then as it was."""
    if not NAME.fullmatch(name):
        raise ViewError(f"name: {name[:40]!r} was given, allowed are up to 32 letters, digits, - and _")
    known = read_views(path)
    if name not in known and len(known) >= MOST_VIEWS:
        raise ViewError(f"{path} has {MOST_VIEWS} views, no more are kept; save over one of them")
    try:
        text = read_text(path, MAX_FILE_BYTES) if path.exists() else HEAD
        written = f"{_without(text, name).rstrip()}\n\n{_block(name, view)}"
        saved = _views_of(written, path)
        write_private(path, written)
    except OSError as error:
        raise ViewError(f"{path}: {error.strerror or error}") from error
    except TomlError as error:
        raise ViewError(f"{path}: {error}") from error
    return saved


def _without(text: str, name: str) -> str:
    """The file without the tables of one view. Its own lines end where another table begins, or a comment
    that stands before one."""
    kept: list[str] = []
    inside = False
    waiting: list[str] = []
    table = re.compile(rf"\s*\[\s*views\s*\.\s*(?:\"{name}\"|{name})\s*(?:\.[^\]]*)?\]")
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            inside = table.match(line) is not None
            kept += waiting
            waiting = []
        if not inside:
            kept.append(line)
        elif line.lstrip().startswith("#"):
            waiting.append(line)
    return "\n".join([*kept, *waiting])


def _block(name: str, view: SavedView) -> str:
    lines = [f"[views.{name}]"]
    usual = msgspec.to_builtins(SavedView())
    for field, value in msgspec.to_builtins(view).items():
        if field != "columns" and (field == "screen" or value != usual[field]):
            lines.append(f"{field} = {_string(value)}")
    for table, choice in view.columns.items():
        lines += [f"[views.{name}.columns.{_string(table)}]"]
        lines += [f"shown = [{', '.join(map(_string, choice.shown))}]"] if choice.shown else []
        lines += [f"hidden = [{', '.join(map(_string, choice.hidden))}]"] if choice.hidden else []
    return "\n".join(lines) + "\n"


def _string(text: str) -> str:
    """A TOML string; JSON's escapes are TOML's too."""
    return msgspec.json.encode(text).decode()


def view_of(look: Look, screen: ScreenName) -> SavedView:
    columns = {
        table: SavedColumns(shown=sorted(choice.shown), hidden=sorted(choice.hidden))
        for table, choice in sorted(look.columns.items())
        if choice.shown or choice.hidden
    }
    return SavedView(
        screen=screen,
        filter=look.filter,
        fleet_sort=look.fleet_sort,
        roster_sort=look.roster_sort,
        request_sort=look.request_sort,
        shown=look.shown,
        lens=look.lens,
        columns=columns,
    )


def apply_view(view: SavedView, look: Look) -> None:
    """All but the screen, to which the operator is taken."""
    look.filter = view.filter[:MAX_FILTER]
    look.fleet_sort, look.roster_sort = view.fleet_sort, view.roster_sort
    look.request_sort, look.shown, look.lens = view.request_sort, view.shown, view.lens
    look.columns = _choices(view.columns)


def _choices(saved: Mapping[str, SavedColumns]) -> dict[str, ColumnChoice]:
    return {
        table: ColumnChoice(frozenset(each.shown), frozenset(each.hidden)) for table, each in saved.items()
    }
