"""What it costs to look back in a large fleet: ``python bench/scrubbing.py FILE.icr``.

The recording is taken up as a console takes it up that watches, and as one that fetched it from the flight
recorder; then moments of it are shown, some far from each other and some one step after the other. Prints
JSON: milliseconds (of the wall, and of the processor, which a busy machine does not lengthen), bytes, and
how many messages a seek folds.
"""

import json
import random
import resource
import statistics
import sys
import time
from pathlib import Path

from infer_console.past.load import REPLAY_BYTES, Loader, load
from infer_console.past.tape import DEFAULT_BYTES, Tape
from infer_console.past.timeline import Timeline
from infer_console.recording import open_recording

SEEKS = 40
STEP_S = 5.0


def measured(path: Path, max_bytes: int) -> dict[str, object]:
    tape = Tape(max_bytes)
    file, reader = open_recording(path)
    began_s = time.perf_counter()
    with file:
        loader = Loader(tape, path.name)
        load(reader.messages(), loader)
    taken_up_s = time.perf_counter() - began_s
    timeline = Timeline(path.name, tape)
    span = tape.span()
    assert span is not None
    first, last = span
    picture = timeline.picture(last)
    draw = random.Random(1)
    far: list[float] = []
    of_processor: list[float] = []
    folded: list[int] = []
    for _ in range(SEEKS):
        at = draw.uniform(first, last)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        timeline.picture(at)
        far.append(time.perf_counter() - began_s)
        of_processor.append(time.process_time() - began_cpu_s)
        folded.append(timeline.last_folded)
    steps: list[float] = []
    at = first
    while at < last:
        began_s = time.perf_counter()
        timeline.picture(at)
        steps.append(time.perf_counter() - began_s)
        at += STEP_S
    return {
        "replicas": len(picture.replicas) if picture is not None else 0,
        "messages": loader.messages,
        "take_up_ms_a_message": round(1000 * taken_up_s / max(1, loader.messages), 3),
        "span_s": round(last - first, 1),
        "tape_bytes": tape.bytes,
        "bytes_a_second": round(tape.bytes / max(1.0, last - first)),
        "segments": len(list(tape.stretches(first, last))),
        "dropped_segments": tape.dropped,
        "seek_ms_p50": round(1000 * statistics.median(far), 1),
        "seek_ms_p95": round(1000 * statistics.quantiles(far, n=20)[-1], 1),
        "seek_cpu_ms_p50": round(1000 * statistics.median(of_processor), 1),
        "seek_cpu_ms_p95": round(1000 * statistics.quantiles(of_processor, n=20)[-1], 1),
        "seek_ms_most": round(1000 * max(far), 1),
        "seek_folds_most": max(folded),
        "step_ms_p50": round(1000 * statistics.median(steps), 1),
        "step_ms_most": round(1000 * max(steps), 1),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    path = Path(sys.argv[1])
    bounds = {"live": DEFAULT_BYTES, "replay": REPLAY_BYTES}
    print(json.dumps({name: measured(path, bound) for name, bound in bounds.items()}, indent=2))


if __name__ == "__main__":
    main()
