"""Small files of the console's own: written whole, readable by their owner alone, never half there."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Put ``text`` in the place of the file, mode 0600. Raise OSError where that cannot be done; the file is
    then as it was."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
