"""Why a server did not answer, or said no."""

from infer_engine.foreign.not_understood import NotUnderstoodError as NotUnderstoodError
from infer_engine.protocol import Problem


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
