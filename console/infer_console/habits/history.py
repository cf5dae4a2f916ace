"""What was entered on the command line, over all consoles of this user."""

from pathlib import Path

from platformdirs import user_state_path

from infer_console.habits.written import write_private
from infer_console.toml_file import never_waiting

MOST_LINES = 500
MAX_FILE_BYTES = 400_000


def history_path() -> Path:
    return user_state_path("infer-console") / "commands"


def read_history(path: Path) -> list[str]:
    """The oldest first; nothing where there is no file. Raise OSError for one that cannot be read."""
    try:
        with open(path, "rb", opener=never_waiting) as file:
            raw = file.read(MAX_FILE_BYTES)
    except FileNotFoundError:
        return []
    lines = raw.decode("utf-8", "replace").split("\n")
    return [line for line in lines if line and line.isprintable()][-MOST_LINES:]


def add_to_history(path: Path, line: str) -> list[str]:
    """All lines with this one as the newest; what was entered before is moved, not repeated. Raise OSError
    where it cannot be kept."""
    kept = [each for each in read_history(path) if each != line]
    kept = [*kept, line][-MOST_LINES:]
    write_private(path, "\n".join(kept) + "\n")
    return kept
