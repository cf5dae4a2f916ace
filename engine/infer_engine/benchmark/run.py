"""``python -m infer_engine bench``: measures what was asked for, part by part, and prints it."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.machine import describe
from infer_engine.benchmark.parts import PARTS, Part
from infer_engine.benchmark.processes import end_tidily
from infer_engine.benchmark.results import Document, DocumentError, encode, merged, read, write
from infer_engine.benchmark.setup import Setup
from infer_engine.benchmark.table import text_table
from infer_engine.model.errors import ModelError

Say = Callable[[str], None]


def run(options: argparse.Namespace, parts: Sequence[Part] = PARTS) -> int:
    """The exit code: 0, 1 where a part failed, 2 for a part that does not exist."""
    if options.list:
        sys.stdout.write(listing(parts) + "\n")
        return 0
    try:
        chosen = choose(parts, options.only)
        document = read(options.out) if options.out else Document()
    except (ValueError, DocumentError) as error:
        say(f"bench: {error}")
        return 2
    end_tidily()
    document, failed = measure(chosen, setup_of(options), document, options.out, say)
    if options.json:
        sys.stdout.buffer.write(encode(document))
    else:
        sys.stdout.write(text_table(document.results) + "\n")
    return 1 if failed else 0


def measure(
    parts: Sequence[Part], setup: Setup, document: Document, out: Path | None, say: Say
) -> tuple[Document, list[str]]:
    """The document with all that could be measured, and the names of the parts that could not. It is written
    after every part, so that nothing is lost by stopping."""
    machine = describe()
    failed: list[str] = []
    for part in parts:
        say(f"{part.name}: {part.what} (about {_expected_s(part, setup):.0f} s)")
        began_s = time.monotonic()
        try:
            document = merged(document, machine, part.name, part.measure(setup))
        except (BenchError, ModelError) as error:
            say(f"{part.name}: FAILED: {error}")
            failed.append(part.name)
            continue
        say(f"{part.name}: done in {time.monotonic() - began_s:.0f} s")
        if out is not None:
            write(out, document)
    return document, failed


def setup_of(options: argparse.Namespace) -> Setup:
    given = {"threads": options.threads} if options.threads is not None else {}
    return Setup(
        repeats=options.repeats,
        model=options.model,
        shrink=options.shrink,
        vocabulary=options.vocabulary,
        say=say,
        **given,
    )


def choose(parts: Sequence[Part], only: str | None) -> list[Part]:
    """ValueError naming a part that does not exist."""
    if only is None:
        return list(parts)
    named = {part.name: part for part in parts}
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    for name in wanted:
        if name not in named:
            raise ValueError(f"--only: {name!r} is no part; allowed: {', '.join(named)}")
    return [named[name] for name in dict.fromkeys(wanted)]


def listing(parts: Sequence[Part]) -> str:
    width = max(len(part.name) for part in parts)
    return "\n".join(f"{part.name:{width}}  {part.expected_s:4.0f} s  {part.what}" for part in parts)


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _expected_s(part: Part, setup: Setup) -> float:
    return part.expected_s * setup.repeats / 3
