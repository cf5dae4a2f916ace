"""Reading a model's ``config.json``: bounded, and never from anything that could make one wait."""

import json
import os
import stat
from pathlib import Path

from infer_engine.planner import ConfigShape, PlanError, shape_of_config

MOST_BYTES = 1024 * 1024


def read_config(given: str) -> ConfigShape:
    """The model of the file, or of the ``config.json`` in the directory. Raise PlanError."""
    try:
        path = Path(given).expanduser()
    except RuntimeError as error:  # whose home is not known
        raise PlanError(f"{given}: {error}") from error
    try:
        if path.is_dir():
            path /= "config.json"
        config: object = json.loads(_bytes_of(path))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError(f"{path}: it is no JSON: {str(error)[:80]}") from error
    name = path.parent.resolve().name if path.name == "config.json" else path.stem
    return shape_of_config(config, str(path), name[:64] or "model")


def _bytes_of(path: Path) -> bytes:
    # Opened first and looked at then: what is opened is what is read. A FIFO would make a reader wait.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise PlanError(f"{path}: a plain file is wanted")
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise PlanError(f"{path}: it has more than {MOST_BYTES:,} bytes, which no config.json has")
    return text
