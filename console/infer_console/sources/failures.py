"""Why a server did not answer, or said no."""

from typing import Any

import httpx2
from infer_engine.foreign.not_understood import NotUnderstoodError as NotUnderstoodError
from infer_engine.protocol import Problem

CONNECT_TIMEOUT_S = 3.0


class UnreachableError(Exception):
    """No answer: nothing listens there, it is too slow, or the connection broke. ``str()`` is one line;
    ``sent`` says whether the server may have got the request all the same."""

    def __init__(self, url: str, why: str, *, sent: bool = True) -> None:
        super().__init__(f"{url}: {why}")
        self.url = url
        self.why = why
        self.sent = sent


class RefusedError(Exception):
    """The server answered with a problem document."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem


def why(error: httpx2.HTTPError) -> str:
    """On one line; the server's words in it are not yet safe to print."""
    match error:
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return f"no connection within {CONNECT_TIMEOUT_S:g} s"
        case httpx2.ConnectError():
            cause: Any = error.__cause__ or error.__context__
            return f"cannot connect ({cause or error})"
        case httpx2.TimeoutException():
            return "no answer in time"
        case _:
            return f"the connection broke ({str(error) or type(error).__name__})"
