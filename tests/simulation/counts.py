"""Counts that add up over seeds and go from process to process as JSON."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self


def counter() -> Counter[str]:
    return Counter()


@dataclass
class Counts:
    @classmethod
    def of(cls, known: Mapping[str, Any]) -> Self:
        """From ``as_dict``, come as JSON from another process."""
        return cls(
            **{name: Counter(value) if isinstance(value, dict) else value for name, value in known.items()}
        )

    def as_dict(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def add(self, other: Self) -> None:
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    def __str__(self) -> str:
        """One line for each thing that was counted."""
        lines: list[str] = []
        for part in fields(self):
            value, name = getattr(self, part.name), part.name.replace("_", " ")
            if isinstance(value, Counter):
                told = ", ".join(f"{count:,} {what}" for what, count in sorted(value.items()))
                lines.append(f"{name}: {told or 'none'}")
            else:
                lines.append(f"{name}: {value:,}")
        return "\n".join(lines)
