"""How outputs agree with those of ``transformers``."""

import json
from dataclasses import dataclass
from pathlib import Path

EXPECTED = Path(__file__).parents[1] / "model" / "expected_ids.json"
#: Two logits this close may change places with the order of summation.
TIE = 1e-3


@dataclass(frozen=True)
class Case:
    """``gaps`` are those of the two top logits where ``expected`` was chosen, in fp32."""

    prompt: list[int]
    expected: list[int]
    gaps: list[float]


@dataclass(frozen=True)
class Difference:
    """The first of a prompt."""

    prompt: int
    position: int
    gap: float

    def __str__(self) -> str:
        return f"prompt {self.prompt} at token {self.position} (gap {self.gap:.5f})"


def cases() -> list[Case]:
    return [Case(**case) for case in json.loads(EXPECTED.read_text())["cases"]]


def differences(outputs: list[list[int]], of: list[Case]) -> list[Difference]:
    """The first difference of each prompt that has one; behind it everything may differ."""
    found: list[Difference] = []
    for number, (output, case) in enumerate(zip(outputs, of, strict=True)):
        for position, (token, expected) in enumerate(zip(output, case.expected, strict=False)):
            if token != expected:
                found.append(Difference(number, position, case.gaps[position]))
                break
    return found
