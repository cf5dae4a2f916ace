"""Exit codes, and which answer of the server means which."""

from infer_engine.protocol import Problem

OK = 0
ERROR = 1
USAGE = 2
UNREACHABLE = 3
DENIED = 4
CONFLICT = 5
TIMED_OUT = 6
PARTIAL = 7
INTERRUPTED = 130
PIPE_CLOSED = 141

_BY_STATUS = {
    400: USAGE,
    401: DENIED,
    403: DENIED,
    408: TIMED_OUT,
    409: CONFLICT,
    412: CONFLICT,
    421: DENIED,
    422: USAGE,
    428: CONFLICT,
    429: CONFLICT,
    504: TIMED_OUT,
}


def of_problem(problem: Problem) -> int:
    return _BY_STATUS.get(problem.status, ERROR)
