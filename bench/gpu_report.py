"""What a check found: printed as it comes, and kept as JSON."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Report:
    results: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    failed: list[str] = field(default_factory=list[str])

    def add(
        self,
        measure: str,
        value: float | str | None,
        unit: str,
        *,
        against: str | None = None,
        ratio: float | None = None,
        wanted: str | None = None,
        met: bool | None = None,
    ) -> None:
        """``met`` False makes the check fail; None is for what nothing is demanded of."""
        self.results.append(
            {
                "measure": measure,
                "value": value,
                "unit": unit,
                "against": against,
                "ratio": ratio,
                "wanted": wanted,
                "met": met,
            }
        )
        if met is False:
            self.failed.append(measure)
        shown = f"{value:.4g}" if isinstance(value, float) else value
        more = [] if against is None else [f"{ratio:.3g} of {against}" if ratio is not None else against]
        more += [] if wanted is None else [f"wanted {wanted}"]
        mark = {True: "ok ", False: "BAD", None: "   "}[met]
        print(f"{mark} {measure}: {shown} {unit}  {'; '.join(more)}".rstrip(), flush=True)
