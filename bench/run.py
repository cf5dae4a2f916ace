"""``make bench``: our own figures and the peers', one at a time, into one file; then the report.

python bench/run.py --list
python bench/run.py                               everything, about half an hour
python bench/run.py --only prefix_hit,llamacpp    some parts; what was measured before is kept
python bench/run.py --missing                     what the file does not have yet
python bench/run.py --report                      nothing is measured, the documents are written again

A peer that is not built is skipped with a reason (``make peers`` builds them). Nothing else should run on the
machine meanwhile.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from compare import PART, comparisons
from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.machine import describe, file_name
from infer_engine.benchmark.options import add_options
from infer_engine.benchmark.parts import PARTS, Part
from infer_engine.benchmark.processes import end_tidily
from infer_engine.benchmark.results import Document, DocumentError, Result, merged, read, write
from infer_engine.benchmark.run import choose, listing, measure, say, setup_of
from infer_engine.benchmark.setup import Setup
from infer_engine.benchmark.table import text_table
from peers.parts import PEERS
from peers.place import NAMES, versions_of, why_missing
from report import write_report

ROOT = Path(__file__).parents[1]
SCRIPT_TIMEOUT_S = 600.0
#: Which environment a part needs.
NEEDS = {
    "transformers_static": "transformers",
    "transformers_continuous": "transformers",
    "vllm": "vllm",
    "llamacpp": "llamacpp",
}


def script(name: str, setup: Setup) -> list[Result]:
    """A measurement that is a program of its own and prints a results document with ``--json``."""
    command = [sys.executable, str(ROOT / "bench" / name), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SCRIPT_TIMEOUT_S, check=True)
        document = json.loads(done.stdout)
        return msgspec.convert(document["results"], list[Result])
    except subprocess.CalledProcessError as error:
        raise BenchError(f"{name} ended with {error.returncode}: {error.stderr[-500:]}") from error
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{name} takes longer than {SCRIPT_TIMEOUT_S:.0f} s") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{name} printed no results document: {error}") from error


def _script_part(name: str, what: str, expected_s: float) -> Part:
    measure_it: Callable[[Setup], list[Result]] = partial(script, f"{name}.py")
    return Part(name, what, expected_s, measure_it)


SCRIPTS = (
    _script_part("routers", "our router beside other rules, on simulated fleets", 500),
    _script_part("decode", "a decode step at batch 1 and 16 against the floor", 90),
    _script_part("fidelity", "perplexity and logit error of the default path", 90),
)
EVERY: tuple[Part, ...] = (*PARTS, *SCRIPTS, *PEERS)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--missing", action="store_true", help="only what the file does not have yet")
    parser.add_argument("--report", action="store_true", help="measure nothing, write the documents")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/ as it is")
    options = parser.parse_args()
    if options.list:
        print(listing(EVERY))
        return 0
    if options.shrink > 1 and not (options.out and options.no_docs):
        parser.error("--shrink tests function, its figures mean nothing: it needs --out and --no-docs")
    machine = {**describe(), "peers": _peer_versions()}
    out = options.out or ROOT / "bench" / "results" / file_name(machine)
    try:
        document = read(out)
        chosen = _chosen(options, document)
        _check_same_machine(document, machine, out)
    except (ValueError, DocumentError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    setup = setup_of(options)
    print(
        f"about {sum(part.expected_s for part in chosen) * setup.repeats / 180:.0f} minutes", file=sys.stderr
    )
    end_tidily()
    try:
        document, failed = measure(chosen, setup, document, out, say)
    except KeyboardInterrupt:
        print(f"interrupted; what was measured is in {out.name}; --missing goes on", file=sys.stderr)
        return 130
    document = merged(document, {"peers": machine["peers"]} if chosen else {}, PART, comparisons(document))
    write(out, document)
    print(text_table(document.results))
    if not options.no_docs and document.results:
        for path in write_report(document, ROOT / "docs"):
            print(f"written: {path.relative_to(ROOT)}", file=sys.stderr)
    if failed:
        print(f"not measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _chosen(options: argparse.Namespace, document: Document) -> list[Part]:
    """What is to be measured and can be; says what cannot."""
    if options.report:
        return []
    chosen: Sequence[Part] = choose(EVERY, options.only)
    if options.missing:
        done = {each.part for each in document.results}
        chosen = [part for part in chosen if part.name not in done]
    kept: list[Part] = []
    for part in chosen:
        missing = _why_not(part)
        if missing is None:
            kept.append(part)
        else:
            print(f"{part.name}: skipped: {missing}", file=sys.stderr)
    return kept


def _why_not(part: Part) -> str | None:
    if part.name in NEEDS:
        return why_missing(NEEDS[part.name])
    if part in SCRIPTS and not (ROOT / "bench" / f"{part.name}.py").exists():
        return f"there is no bench/{part.name}.py"
    return None


def _check_same_machine(document: Document, machine: Mapping[str, object], out: Path) -> None:
    for key in ("cpu", "cores"):
        if key in document.machine and document.machine[key] != machine[key]:
            raise ValueError(
                f"{out.name} holds figures of another machine ({key}: {document.machine[key]}, here "
                f"{machine[key]}); give another file with --out"
            )


def _peer_versions() -> dict[str, str]:
    return {
        package: version
        for peer in NAMES
        for package, version in (versions_of(peer) or {}).items()
        if package != "torch"
    }


if __name__ == "__main__":
    sys.exit(main())
