"""The contexts file: engine servers by name, and which of them is the current one."""

import difflib
import os
import re
from pathlib import Path
from typing import TypeVar, cast

import msgspec
import platformdirs

from infer_console.toml_file import TomlError, parse_toml, read_text

MAX_FILE_BYTES = 1_000_000

T = TypeVar("T")
#: The line that names the current context; it stands before the first table.
_CURRENT = re.compile(r"^current\s*=.*$", re.MULTILINE)


#: Each theme has its own shade of them.
COLOURS = ("red", "orange", "yellow", "green", "cyan", "blue", "magenta")


class ContextsError(ValueError):
    """The file or a name in it leads nowhere; ``str()`` says which, in one line."""


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """One entry of ``contexts.toml``, named by its table: ``[contexts.lab]``. Secrets are in none of it: a
    token is in the file or the environment variable that is named here."""

    url: str
    #: Of its name in the first line: one of :data:`COLOURS`.
    colour: str | None = None
    read_only: bool = False
    production: bool = False
    token_file: str | None = None
    token_env: str | None = None
    #: Certificates (PEM) to trust for ``https://``, in the place of the system's.
    ca_file: str | None = None


class Contexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    current: str | None = None
    contexts: dict[str, Context] = {}


def contexts_path() -> Path:
    return Path(platformdirs.user_config_dir("infer-console")) / "contexts.toml"


def read_contexts(path: Path) -> Contexts:
    """What the file says, nothing where there is none."""
    try:
        raw = parse_toml(read_text(path, MAX_FILE_BYTES))
    except FileNotFoundError:
        return Contexts()
    except TomlError as error:
        raise ContextsError(f"{path}: {error}") from error
    contexts = raw.get("contexts")
    if isinstance(contexts, dict):  # each by itself, so that what is wrong can be named
        for name, context in cast("dict[str, object]", contexts).items():
            colour = _convert(context, Context, path, f"contexts.{name}").colour
            if colour is not None and colour not in COLOURS:
                raise ContextsError(
                    f"{path}: contexts.{name}.colour: {colour!r} was given, allowed is {', '.join(COLOURS)}"
                )
    return _convert(raw, Contexts, path, "")


def _convert(raw: object, kind: type[T], path: Path, where: str) -> T:
    """Raise ContextsError that names the entry: ``contexts.eu.url``."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$")
        entry = f"{where}{place.removesuffix('`')}".lstrip(".")
        raise ContextsError(f"{path}: {f'{entry}: ' if entry else ''}{said}") from error


def find_context(known: Contexts, name: str, path: Path) -> Context:
    context = known.contexts.get(name)
    if context is None:
        near = difflib.get_close_matches(name, known.contexts, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known.contexts) or 'none'}"
        raise ContextsError(f"{path}: there is no context {name!r}{hint}")
    return context


def use_context(name: str, path: Path) -> None:
    """Make it the current one; everything else in the file stays as somebody wrote it."""
    find_context(read_contexts(path), name, path)
    text = read_text(path, MAX_FILE_BYTES)
    line = f"current = {msgspec.json.encode(name).decode()}"
    head, bracket, tables = text.partition("[")
    found = _CURRENT.search(head)
    head = head[: found.start()] + line + head[found.end() :] if found else f"{line}\n{head}"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(head + bracket + tables, encoding="utf-8")
        temporary.chmod(path.stat().st_mode & 0o777)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
