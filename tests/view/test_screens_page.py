"""The page about screens lists what each size shows. ``UPDATE_GOLDEN=1`` writes the list anew."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from infer_console.state.finding import Finding
from infer_console.state.picture import Picture
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.look import Look, Size
from infer_console.view.replica_screen import replica_screen
from infer_console.view.row import Row, plain
from support import pictures

PAGE = Path(__file__).parents[2] / "docs/screens.md"
BEGIN, END = "<!-- written by: UPDATE_GOLDEN=1 pytest tests/view/test_screens_page.py -->\n", "<!-- end -->"
SIZES = (Size(300, 80), Size(200, 50), Size(120, 36), Size(80, 24), Size(40, 12))
TITLE = re.compile(r"──[▸ ](LAST|TENANTS|[A-Z]{4,})")
#: Panes without a title, by what their first row begins with.
LINES = {
    " RUN ": "vital line",
    " TTFT of the slowest": "slowest 1 %",
    " slow 1%": "slowest 1 %",
    " ▲ 1": "alarms",
    " SCALE": "scaling",
    " GATEWAY": "gateway",
    " WAIT ": "reasons (a line)",
    " KV BY TENANT": "tenants (a line)",
    " op-": "operations",
    " why:": "why",
    " STEP": "step",
    " TIME ": "time",
    " GPU": "device",
    " doctor:": "doctor",
}
CURVE = re.compile(r"^ (TTFT p99|KV|WAIT|TOK/S|ITL p99|RUN) +[▁-█]{3}")
WORDS = {"LAST": "history", "TENANTS": "tenants", "WAITING": "reasons"}


def incident() -> Picture:
    found = Finding(rule="kv", confidence=0.9, words="KV is short")
    return pictures.incident(findings=(found,))


def fleet(size: Size) -> list[Row]:
    return fleet_screen(incident(), Look(), size, pictures.NOW)


def replica(size: Size) -> list[Row]:
    return replica_screen(incident(), Look(replica="r2"), size, pictures.NOW)


SCREENS: tuple[tuple[str, str, Callable[[Size], list[Row]]], ...] = (
    ("Fleet", "ID", fleet),
    ("Replica", "REQ", replica),
)


def panes(text: list[str]) -> list[str]:
    """In the order in which the screen shows them."""
    seen: list[str] = []
    for row in text:
        titles = [str(title) for title in TITLE.findall(row)]
        named = [WORDS.get(title, title.lower()) for title in titles]
        named += [name for start, name in LINES.items() if row.startswith(start) and not CURVE.match(row)]
        if row.startswith(" KV █") or row.startswith(" KV ·"):
            named.append("pool")
        elif CURVE.match(row):
            named.append("history")
        if re.match(r" \d\d:\d\d:\d\d [A-Z]+ ", row):
            named.append("events")
        seen += [name for name in named if name not in seen]
    table = next((number for number, row in enumerate(text) if re.match(r"  ID +STATE", row)), None)
    if table is not None:
        before = [name for name in seen if any(_begins(row, name) for row in text[:table])]
        seen = [*before, "replicas", *(name for name in seen if name not in before)]
    return seen


def _begins(row: str, name: str) -> bool:
    return any(row.startswith(start) and name == called for start, called in LINES.items())


def columns(text: list[str], first: str) -> list[str]:
    """The heads of the screen's table, without units; marks on the gauge are none of them."""
    head = next(row for row in text if re.match(rf" +{first} ", row))
    head = re.split(r" {2,}(?=── )", head)[0].split("── ")[0]
    return [word for word in head.split() if re.fullmatch(r"[A-Z0-9%/m]+", word) and word != "m"]


def listed() -> str:
    made: list[str] = []
    for name, first, draw in SCREENS:
        made += ["", f"### {name}", "", "| size | panes | columns |", "|---|---|---|"]
        for size in SIZES:
            text = [plain(row) for row in draw(size)]
            heads = " ".join(columns(text, first))
            made.append(f"| {size.width}×{size.height} | {', '.join(panes(text))} | {heads} |")
    return "\n".join(made) + "\n\n"


def test_the_page_lists_what_each_size_shows() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(before + BEGIN + listed() + END + after, encoding="utf-8")
        page = PAGE.read_text(encoding="utf-8")
    assert page == before + BEGIN + listed() + END + after


def test_the_vital_line_is_on_every_size_and_more_room_shows_no_less() -> None:
    for _, first, draw in SCREENS:
        least: set[str] = set()
        for size in reversed(SIZES):
            text = [plain(row) for row in draw(size)]
            assert text[1].startswith(" RUN ")
            shown = set(columns(text, first))
            if size.width >= 120:  # from here on heads are not shortened
                assert least <= shown, size
                least = shown
