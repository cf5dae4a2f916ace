"""Running a verb in this process, as the command line does."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from infer_console.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


#: The words of a command line, ``infer-console`` left out.
Run = Callable[..., Result]


def runner(capsys: pytest.CaptureFixture[str], *first: str) -> Run:
    """Runs its words after ``first``."""

    def run(*words: str) -> Result:
        try:
            code = main((*first, *words))
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        return Result(code, *capsys.readouterr())

    return run
