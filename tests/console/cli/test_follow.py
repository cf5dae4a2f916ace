"""What a waiting verb makes of the operation that it follows."""

from typing import Any, cast

import pytest
from infer_console.cli import codes
from infer_console.cli.follow import QUIET_S, Saying, follow
from infer_engine.protocol import Operation, OperationPhase, Problem


class Told:
    """Stands in for the server: tells these phases, the last one for ever."""

    def __init__(self, operation: Operation, *phases: OperationPhase) -> None:
        self._operation = operation
        self._phases = list(phases)

    async def operation(self, _operation: str) -> Operation:
        phase = self._phases.pop(0) if len(self._phases) > 1 else self._phases[0]
        fields = {name: getattr(self._operation, name) for name in self._operation.__struct_fields__}
        return Operation(**{**fields, "phase": phase})


def drain(**fields: Any) -> Operation:
    return Operation(
        **{"id": "op-1", "kind": "drain", "target": "r0", "phase": "running", "started_at": 0.0, **fields}
    )


@pytest.mark.parametrize(
    ("phase", "code"), [("succeeded", codes.OK), ("failed", codes.ERROR), ("cancelled", codes.CONFLICT)]
)
async def test_it_waits_for_the_end_and_says_how_it_ended(phase: OperationPhase, code: int) -> None:
    operation = drain(deadline_at=60.0)
    told = Told(operation, "running", phase)
    ended, got = await follow(cast(Any, told), operation)
    assert (ended.phase, got) == (phase, code)


async def test_a_deadline_that_passed_ends_the_waiting_and_not_the_operation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    operation = drain(deadline_at=0.0, blocked_by=["q1: 3 of 9 tokens", "q2"], done=1, total=3)
    ended, code = await follow(cast(Any, Told(operation, "running")), operation)
    assert (ended.phase, code) == ("running", codes.TIMED_OUT)
    said = capsys.readouterr()
    assert said.out == ""
    assert "1 of 3 done, waiting for q1: 3 of 9 tokens and 1 more" in said.err
    assert "it goes on" in said.err


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (401, 4), (403, 4), (404, 1), (409, 5), (412, 5), (422, 2), (429, 5), (500, 1), (504, 6)],
)
def test_what_the_server_answers_is_an_exit_code(status: int, code: int) -> None:
    assert codes.of_problem(Problem(status=status, code="x", title="x")) == code


def test_a_terminal_is_told_each_change_and_a_file_every_five_seconds_or_phase() -> None:
    changing = [(f"{index} of 20 done", "running", 100.0 + index / 2) for index in range(20)]
    at_once, seldom = Saying(0.0), Saying(QUIET_S)
    assert sum(at_once.is_news(*each) for each in changing) == 20
    assert [at for line, phase, at in changing if seldom.is_news(line, phase, at)] == [100.0, 105.0]
    assert seldom.is_news("over", "succeeded", 109.6)
    assert not seldom.is_news("over", "succeeded", 200.0)
