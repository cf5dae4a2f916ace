"""The measured figures as docs/performance.md's generated part, and the plot beside it."""

from pathlib import Path
from typing import Any

from infer_engine.benchmark.batching import BATCHES, ROOFLINE, measure_name
from infer_engine.benchmark.results import Document, Result, find
from infer_engine.benchmark.table import markdown_table
from plot import Line, log_plot

BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
PLOT = Path("images/batching.svg")
#: Headings, and the parts under each.
SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Beside the peers", ("comparison",)),
    ("Batching is nearly free", ("batching",)),
    ("The model alone", ("decode", "fidelity")),
    ("Interference and reuse", ("chunked", "prefix_hit", "stragglers")),
    ("Overheads", ("scheduler", "start", "consoles")),
    ("Many connections", ("connections",)),
    (
        "What each server reached",
        ("workload", "transformers_static", "transformers_continuous", "vllm", "llamacpp"),
    ),
)


def write_report(document: Document, docs: Path) -> list[Path]:
    """Replace the generated part of ``docs``/performance.md; returns what was written. ValueError where the
    page has no such part."""
    page = docs / "performance.md"
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} has no part between {BEGIN} and {END}")
    written = [page]
    plot = batching_plot(document)
    if plot is not None:
        (docs / PLOT).parent.mkdir(exist_ok=True)
        (docs / PLOT).write_text(plot, encoding="utf-8")
        written.append(docs / PLOT)
    page.write_text(f"{before}{BEGIN}\n\n{generated(document)}\n\n{END}{after}", encoding="utf-8")
    return written


def generated(document: Document) -> str:
    parts = [machine_line(document.machine)]
    for heading, names in SECTIONS:
        results = [each for each in document.results if each.part in names]
        if not results:
            continue
        parts.append(f"### {heading}")
        if "batching" in names:
            parts.append(f"![tokens/s at batch 1 to 32 beside the roofline]({PLOT.as_posix()})")
        parts.append(markdown_table(results))
        parts += notes(results)
    return "\n\n".join(parts)


def notes(results: list[Result]) -> list[str]:
    """Each note once, with what it is about."""
    about: dict[str, list[str]] = {}
    for each in results:
        if each.note:
            about.setdefault(each.note, []).append(
                each.measure if each.subject == "infer-console" else each.subject
            )
    lines = [f"- {names[0]}{' …' if len(names) > 1 else ''}: {note}" for note, names in about.items()]
    return ["\n".join(lines)] if lines else []


def machine_line(machine: dict[str, Any]) -> str:
    packages = {**machine.get("packages", {}), **machine.get("peers", {})}
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    flags = " ".join(machine.get("flags", []))
    return (
        f"Machine: {machine.get('cpu')}, {machine.get('cores')} cores ({flags}), "
        f"{machine.get('memory_gib')} GiB, {machine.get('system')}, "
        f"Python {machine.get('python')}; {versions}."
    )


def batching_plot(document: Document) -> str | None:
    """None where batching was not measured."""
    measured: list[tuple[float, float]] = []
    best: list[tuple[float, float]] = []
    for batch in BATCHES:
        each = find(document, measure_name(batch))
        if each is not None and each.value is not None:
            measured.append((batch, each.value))
            if each.ratio:
                best.append((batch, each.value / each.ratio))
    if not measured:
        return None
    lines = [Line("infer-console, over HTTP", "#1f6feb", measured)]
    if best:
        lines.append(Line(ROOFLINE, "#888", best, dashed=True))
    return log_plot("Batching is nearly free", "sequences in the batch", "tokens/s", BATCHES, lines)
