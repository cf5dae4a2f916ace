"""Who says what about a vLLM while it works: our console, ``vllm-htop`` beside it, vLLM's own log, and the
clients that cause the work. All of them in the same words: samples by the second of the clock."""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from infer_console.collector import Collector
from infer_console.connect import parse_url
from peers.place import python_of

#: Of a minute: both consoles tell percentiles over one.
MINUTE_S = 60
SAMPLE_S = 1.0
#: The longest that it can be told to wait, and as long as vLLM's log line is about.
HTOP_S = 10
MAX_SAMPLES = 4_000
_LOG_LINE = re.compile(
    r"INFO (\d\d-\d\d \d\d:\d\d:\d\d) .*Avg generation throughput: ([\d.]+) tokens/s, Running: (\d+) reqs,"
    r" Waiting: (\d+) reqs,.*KV cache usage: ([\d.]+)%"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """``at`` is Unix seconds; ``kv_percent`` of the pool; latencies are seconds over ``over_s``, by their
    share. None: not told."""

    at: float
    running: float | None = None
    waiting: float | None = None
    kv_percent: float | None = None
    tokens_per_s: float | None = None
    ttft_s: dict[float, float | None]
    itl_s: dict[float, float | None]


class OurConsole:
    """The console's own collector, looked at once a second as its screens are."""

    def __init__(self, url: str) -> None:
        self.samples: list[Sample] = []
        self._collector = Collector(parse_url(f"vllm+{url}"))
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._look, name="our-console")

    def _look(self) -> None:
        while not self._leave.wait(SAMPLE_S) and len(self.samples) < MAX_SAMPLES:
            totals = self._collector.picture.totals
            if totals is None or self._collector.picture.link.state != "live":
                continue
            kv = totals.kv_used_ratio
            latencies = [
                {0.50: each.p50, 0.95: each.p95, 0.99: each.p99} for each in (totals.ttft_s, totals.itl_s)
            ]
            sample = Sample(
                at=time.time(),
                running=totals.running,
                waiting=totals.waiting,
                kv_percent=None if kv is None else kv * 100,
                tokens_per_s=totals.tokens_per_s,
                ttft_s=latencies[0],
                itl_s=latencies[1],
            )
            self.samples.append(sample)

    def __enter__(self) -> "OurConsole":
        self._collector.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave.set()
        self._thread.join()
        self._collector.stop()


@contextmanager
def vllm_htop(url: str) -> Generator[Path]:
    """``vllm-htop`` writing a JSON line every ``HTOP_S`` into the file that is yielded."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "lines"
        command = [str(python_of("vllm-htop").with_name("vllm-htop")), "--url", url, "--output", "json"]
        with lines.open("wb") as out:
            process = subprocess.Popen(
                [*command, "--interval", str(HTOP_S), "--no-gpu-detect"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": ""},
                start_new_session=True,
            )
        try:
            yield lines
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


def htop_samples(lines: Path) -> list[Sample]:
    """Of its latencies only the 95th percentile is over a minute. What it calls TPOT is the mean gap of each
    request that ended, where ours is every gap."""
    samples: list[Sample] = []
    for line in lines.read_text().splitlines():
        told: dict[str, Any] = json.loads(line)
        (row,) = told["replicas"]
        if row["status"] != "OK":
            continue
        ttft, tpot = (row["latency_seconds"][name] for name in ("ttft", "tpot"))
        sample = Sample(
            at=told["timestamp"],
            running=row["running"],
            waiting=row["waiting"],
            kv_percent=row["kv_pct"],
            tokens_per_s=row["throughput"]["gen_tokens_per_s"],
            ttft_s={0.95: ttft["p95_60s"]},
            itl_s={0.95: tpot["p95_60s"]},
        )
        samples.append(sample)
    return samples


def log_samples(log: Path) -> list[Sample]:
    """vLLM's line of every ten seconds: tokens over those, the rest at their end. It tells no latencies."""
    samples: list[Sample] = []
    for line in log.read_text(errors="replace").splitlines():
        if match := _LOG_LINE.search(line):
            when, rate, running, waiting, kv = match.groups()
            moment = time.strptime(f"{time.localtime().tm_year}-{when}", "%Y-%m-%d %H:%M:%S")
            sample = Sample(
                at=time.mktime(moment),
                running=float(running),
                waiting=float(waiting),
                kv_percent=float(kv),
                tokens_per_s=float(rate),
                ttft_s={},
                itl_s={},
            )
            samples.append(sample)
    return samples
