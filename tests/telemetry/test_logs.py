"""Log lines: one JSON object each, and nothing in them that a terminal would act on."""

import io
import json
import logging
from collections.abc import Generator

import pytest
from infer_engine.telemetry.logs import MAX_TEXT, configure_logging

HOSTILE = "\x1b]52;c;ZXZpbA==\x07 \x9b2J \u202e line\nbreak \x7f \ud800 \u2028"


@pytest.fixture
def stream() -> Generator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def test_hostile_text_is_escaped(stream: io.StringIO) -> None:
    logging.getLogger("test").info("got %s", HOSTILE)
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert all(" " <= character <= "~" for character in line.rstrip("\n"))
    assert json.loads(line)["message"] == f"got {HOSTILE}"


def test_exceptions_are_in_the_same_line(stream: io.StringIO) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("test").exception("it failed")
    line = stream.getvalue()
    assert line.count("\n") == 1
    document = json.loads(line)
    assert (document["level"], document["message"]) == ("ERROR", "it failed")
    assert "ValueError" in document["exception"]


def test_long_messages_are_cut(stream: io.StringIO) -> None:
    logging.getLogger("test").info("x" * (MAX_TEXT * 3))
    message = json.loads(stream.getvalue())["message"]
    assert message.endswith(f"({MAX_TEXT * 2} characters dropped)")
    assert len(message) < MAX_TEXT + 100


def test_libraries_are_quiet_below_warning(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").info("started")
    logging.getLogger("uvicorn.access").warning("GET /")
    assert stream.getvalue() == ""
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    assert json.loads(stream.getvalue())["level"] == "WARNING"
