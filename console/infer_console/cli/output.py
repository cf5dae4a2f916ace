"""What a verb prints: data on stdout, the rest on stderr, nothing that could reach the terminal as an
escape."""

import json
import sys
from collections.abc import Iterable, Sequence

import msgspec

from infer_console.terminal.safe_text import safe


def print_json(document: object) -> None:
    """One JSON document, in ASCII: a terminal must not act on what users wrote. Indented for a person."""
    plain = msgspec.to_builtins(document)
    if sys.stdout.isatty():
        print(json.dumps(plain, indent=2))
    else:
        print(json.dumps(plain, separators=(",", ":")))


def print_line(text: str) -> None:
    print(safe(text))


def note(text: str) -> None:
    """Something to know that is not data."""
    for line in text.splitlines():
        print(safe(line), file=sys.stderr)


def complain(text: str) -> None:
    """An error, in one line or a few."""
    first, *rest = text.splitlines() or [""]
    print(f"infer-console: {safe(first)}", file=sys.stderr)
    for line in rest:
        print(safe(line), file=sys.stderr)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns two spaces apart. A head that ends in ``>`` has its column aligned to the right."""
    table = [[safe(str(cell), 120) for cell in row] for row in rows]
    names = [head.removesuffix(">") for head in heads]
    widths = [max([len(name), *(len(row[at]) for row in table)]) for at, name in enumerate(names)]
    for row in [names, *table]:
        cells = [
            cell.rjust(width) if head.endswith(">") else cell.ljust(width)
            for cell, width, head in zip(row, widths, heads, strict=True)
        ]
        print("  ".join(cells).rstrip())
