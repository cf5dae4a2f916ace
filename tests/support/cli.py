"""Running a verb in this process, as the command line does."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


#: The words of a command line, ``infer-console`` left out.
Run = Callable[..., Result]
