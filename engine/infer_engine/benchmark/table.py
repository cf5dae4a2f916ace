"""Results for people."""

from collections.abc import Iterable, Sequence

from infer_engine.benchmark.results import Result

_SIGNS = {True: "yes", False: "NO", None: ""}


def number(value: float | None) -> str:
    """Three significant digits, more only before the point."""
    if value is None:
        return "–"
    if abs(value) >= 1e6:
        return f"{value:.3g}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def spread(samples: Sequence[float]) -> str:
    return f"{number(min(samples))} … {number(max(samples))}" if len(samples) > 1 else ""


def cells(each: Result) -> list[str]:
    """Measure, subject, value with its unit, spread, what it is compared with, ratio, wanted, met."""
    sign = "≥" if each.bound == "least" else "≤"
    return [
        each.measure,
        each.subject,
        f"{number(each.value)} {each.unit}",
        spread(each.samples),
        each.against or "",
        "" if each.against is None else f"{number(each.ratio)}×",
        "" if each.wanted is None else f"{sign} {number(each.wanted)}",
        _SIGNS[each.met],
    ]


HEADS = ("measure", "of", "median", "spread", "against", "ratio", "wanted", "met")


def text_table(results: Iterable[Result]) -> str:
    rows = [list(HEADS), *(cells(each) for each in results)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def markdown_table(results: Iterable[Result]) -> str:
    lines = [f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in cells(each))} |" for each in results]
    return "\n".join(lines)
