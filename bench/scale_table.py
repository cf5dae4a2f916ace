"""What ``scale.py`` measured, as JSON and as a table: a row for each measure, a column for each size."""

import json
import os
from pathlib import Path
from typing import Any

#: Of one size, by measure; None where it was not measured.
Row = dict[str, float | None]
Rows = dict[str, Row]
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"


def read(path: Path) -> Rows:
    """By number of replicas, then by measure; nothing where there is no file."""
    return json.loads(path.read_text())["replicas"] if path.exists() else {}


def write_json(path: Path, machine: dict[str, Any], note: str | None, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"version": 1, "machine": machine, "note": note, "replicas": rows}
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(document, indent=1) + "\n")
    os.replace(beside, path)


def table(rows: Rows) -> str:
    sizes = sorted(rows, key=int)
    measures = list(dict.fromkeys(measure for size in reversed(sizes) for measure in rows[size]))
    lines = [
        "| replicas | " + " | ".join(f"{int(size):,}" for size in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for measure in measures:
        values = (shown(rows[size].get(measure)) for size in sizes)
        lines.append(f"| {measure} | " + " | ".join(values) + " |")
    return "\n".join(lines)


def shown(value: float | None) -> str:
    """Three digits; – where it was not measured."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write_docs(path: Path, machine: dict[str, Any], note: str | None, rows: Rows) -> None:
    """Put the table between the marks of the page."""
    page = path.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    packages = machine["packages"]
    said = (
        f"Machine: {machine['cpu'].split(' with ')[0].strip()}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}; "
        f"infer-console {packages.get('infer-console', '?')}."
    )
    said += f" {note}" if note else ""
    path.write_text(f"{before}{BEGIN}\n\n{said}\n\n{table(rows)}\n\n{END}{after}")
