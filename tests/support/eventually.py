"""Waiting for a condition with a deadline, never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(what: Callable[[], T], timeout_s: float = 60.0) -> T:
    """The first truthy answer of ``what``; fails with its last answer when the time is up."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = what()
        if answer:
            return answer
        assert time.monotonic() < deadline_s, f"did not come in time; last: {answer!r}"
        time.sleep(0.02)
