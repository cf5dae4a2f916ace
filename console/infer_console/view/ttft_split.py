"""Where the slowest 1 % of first tokens spent their time, in one line."""

from infer_engine.protocol import TtftSplit

from infer_console.diagnosis.onset import moved_first
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import UNKNOWN, clock_in_lists, milliseconds, seconds
from infer_console.view.row import Line, Row

#: Long and short names, in the order in which a request passes them.
PARTS = (
    ("gateway", "gw"),
    ("tokenize", "tok"),
    ("queue", "queue"),
    ("prefill", "prefill"),
    ("send", "send"),
)

#: Less than the first reads 0 in seconds, less than the second in milliseconds too.
LEAST_SHOWN_S = 0.05
LEAST_S = 0.001


def split_row(picture: Picture, width: int) -> Row | None:
    """The largest part in capitals. None where no streamed answer of the last minute is known."""
    totals = picture.totals
    split = totals.ttft_split_s.slowest if totals is not None else None
    if split is None:
        return None
    moved = moved_first(picture.history, picture.at)
    for wording in (_long(split), _short(split), _shortest(split)):
        line = Line(width).put(" ")
        for text, largest in wording:
            line.put(text, "strong" if largest else "label")
        if sum(len(text) for text, _ in wording) < width:
            break
    if moved is not None:
        at = clock_in_lists(moved.at)
        for told in (
            f"  moved first: {moved.first} {at} ",
            f"  {moved.first} 1st at {at[:5]}",
            f"  {moved.first} moved 1st",
            "",
        ):
            if len(told) <= line.left:
                line.put(safe(told), "warn")
                break
    return line.row()


Wording = list[tuple[SafeText, bool]]


def _values(split: TtftSplit) -> list[tuple[str, str, float | None]]:
    return [(long, short, getattr(split, long)) for long, short in PARTS]


def _largest(split: TtftSplit) -> str | None:
    """None where all of them read 0."""
    known = [(value, name) for name, _, value in _values(split) if value and value >= LEAST_S]
    return max(known)[1] if known else None


def _quick(split: TtftSplit) -> bool:
    """Whether all would read 0 in seconds."""
    known = [value for _, _, value in _values(split) if value is not None]
    return bool(known) and max(known) < LEAST_SHOWN_S


def _unit(split: TtftSplit) -> SafeText:
    return safe("ms" if _quick(split) else "s")


def _figure(split: TtftSplit, value: float | None) -> SafeText:
    if value is None:
        return UNKNOWN
    if _quick(split):
        return milliseconds(value)
    return seconds(value) if value >= LEAST_SHOWN_S else safe("0")


def _long(split: TtftSplit) -> Wording:
    return [(safe("TTFT of the slowest 1%: "), False), *_sum(split, 0), (safe(f" {_unit(split)}"), False)]


def _short(split: TtftSplit) -> Wording:
    return [(safe("slow 1%: "), False), *_sum(split, 1)]


def _sum(split: TtftSplit, wording: int) -> Wording:
    largest = _largest(split)
    made: Wording = []
    for long, short, value in _values(split):
        name = (long, short)[wording]
        shown = name.upper() if long == largest else name
        made.append((safe(f"{' + ' if made else ''}{shown} {_figure(split, value)}"), long == largest))
    return made


def _shortest(split: TtftSplit) -> Wording:
    largest = _largest(split)
    if largest is None:
        return [(safe("slow 1%: <1ms" if _quick(split) else "slow 1%: –"), False)]
    quick = _quick(split)
    return [
        (safe("slow 1%: "), False),
        (safe(f"{largest.upper()} {_figure(split, getattr(split, largest))}"), True),
        (safe(f" of {milliseconds(split.total) if quick else seconds(split.total)}{_unit(split)}"), False),
    ]
