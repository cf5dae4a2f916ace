"""One small plot as SVG, written by hand: lines with points on logarithmic axes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 44, 56
INK, GRID = "#444", "#ddd"


@dataclass(frozen=True, slots=True)
class Line:
    """``points`` are (x, y), both above 0."""

    name: str
    color: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def log_plot(title: str, x_name: str, y_name: str, x_ticks: Sequence[float], lines: Sequence[Line]) -> str:
    """The document; ValueError where there is nothing to draw."""
    ys = [y for line in lines for _, y in line.points]
    if not ys:
        raise ValueError("no points to draw")
    y_ticks = _ticks(min(ys), max(ys))
    x_of = _Scale(x_ticks[0], x_ticks[-1], LEFT, WIDTH - RIGHT)
    y_of = _Scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    body = [_text(WIDTH / 2, 22, title, size=15, anchor="middle")]
    for tick in x_ticks:
        x = x_of(tick)
        body.append(_rule(x, TOP, x, HEIGHT - BOTTOM, GRID))
        body.append(_text(x, HEIGHT - BOTTOM + 18, f"{tick:g}", anchor="middle"))
    for tick in y_ticks:
        y = y_of(tick)
        body.append(_rule(LEFT, y, WIDTH - RIGHT, y, GRID))
        body.append(_text(LEFT - 8, y + 4, f"{tick:g}", anchor="end"))
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, x_name, anchor="middle"))
    body.append(_text(LEFT - 52, TOP - 10, y_name))
    for number, line in enumerate(lines):
        places = [(x_of(x), y_of(y)) for x, y in line.points]
        body.append(_line(line, places))
        body += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{line.color}"/>'
            for x, y in places
            if not line.dashed
        ]
        y = HEIGHT - BOTTOM - 14 - 20 * (len(lines) - 1 - number)
        body.append(_rule(WIDTH - 250, y - 4, WIDTH - 226, y - 4, line.color))
        body.append(_text(WIDTH - 220, y, line.name))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


class _Scale:
    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._span = math.log(low), math.log(high / low) or 1.0
        self._start, self._length = start, end - start

    def __call__(self, value: float) -> float:
        return self._start + self._length * (math.log(value) - self._low) / self._span


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, from one not above ``low`` to one not below ``high``."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = [step * 10.0**power for power in range(first, last + 1) for step in (1, 2, 5)]
    start = max(index for index, tick in enumerate(every) if tick <= low)
    end = min(index for index, tick in enumerate(every) if tick >= high)
    return every[start : max(end, start + 1) + 1]


def _rule(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(line: Line, places: Sequence[tuple[float, float]]) -> str:
    dash = ' stroke-dasharray="6 4"' if line.dashed else ""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{points}" fill="none" stroke="{line.color}" stroke-width="2"{dash}/>'
