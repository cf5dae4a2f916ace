"""Logs: one JSON object a line on stderr. What a client sent can never break a line or steer a terminal."""

import json
import logging
import sys
from typing import TextIO

#: Longest message and traceback kept, in characters.
MAX_TEXT = 8_192


class JsonFormatter(logging.Formatter):
    """Every character outside printable ASCII leaves escaped, so a line holds no control, C1 or bidi
    character."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "at": round(record.created, 3),
            "level": record.levelname,
            "logger": record.name,
            "message": _capped(record.getMessage()),
        }
        if record.exc_info:
            fields["exception"] = _capped(self.formatException(record.exc_info))
        return json.dumps(fields, ensure_ascii=True).replace("\x7f", "\\u007f")


def configure_logging(level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Make stderr (or ``stream``) the only place that logs go to. Library chatter starts at WARNING."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("uvicorn", "uvicorn.error", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    access = logging.getLogger("uvicorn.access")
    access.handlers[:] = []
    access.propagate = False


def _capped(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}… ({len(text) - MAX_TEXT} characters dropped)"
