"""``make peer-numbers``: the console's figures of a real vLLM beside those of its log, of vllm-htop, and of
the clients that cause them, in the same minute.

It starts a small vLLM (``--url`` and ``--log`` take one that runs, ``make serve-peers --log``), lets six
clients ask without pause where four fit, and compares one minute of that. The table is kept in
``bench/results/peer-numbers.md``. It ends with 1 where a figure of ours is further from another's than
sampling explains.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx2
from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.machine import describe
from infer_engine.benchmark.processes import end_tidily, free_port
from infer_engine.foreign import vllm
from infer_engine.foreign.page import Page
from peers.agreement import Minute, Row, rows, table
from peers.clients import CLIENTS, OUTPUT_TOKENS, PROMPT_TOKENS, Clients
from peers.place import versions_of
from peers.servers import VLLM, start_small, url_of, wait_ready
from peers.witnesses import MINUTE_S, OurConsole, htop_samples, log_samples, vllm_htop

#: Rates are over ten seconds, and vLLM's first log line is about a time before the load.
WARM_UP_S = 25.0
KEPT = Path(__file__).parent / "results" / "peer-numbers.md"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="of a vLLM that runs, http://127.0.0.1:PORT")
    parser.add_argument("--log", type=Path, help="what that one writes")
    parser.add_argument("--out", type=Path, default=KEPT, help="where the table is kept")
    options = parser.parse_args()
    if (options.url is None) != (options.log is None):
        parser.error("--url and --log belong together")
    end_tidily()
    try:
        compared = compare_running(options.url, options.log) if options.url else compare_own()
    except BenchError as error:
        print(f"peer_numbers: {error}", file=sys.stderr)
        return 1
    document = f"{heading()}\n{table(compared)}"
    print(document)
    options.out.write_text(document)
    return 0 if all(row.agrees for row in compared) else 1


def compare_own() -> list[Row]:
    with ExitStack() as stack:
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        port = free_port()
        print("starting vLLM (a minute or two)", file=sys.stderr)
        wait_ready(VLLM, stack.enter_context(start_small(VLLM, port, log)), port)
        return compare_running(url_of(port), log)


def compare_running(url: str, log: Path) -> list[Row]:
    return asyncio.run(compare(url, log))


async def compare(url: str, log: Path) -> list[Row]:
    clients = Clients()
    working = asyncio.create_task(clients.work(url))
    try:
        with OurConsole(url) as ours, vllm_htop(url) as htop:
            await during(working, lambda: False, WARM_UP_S + MINUTE_S)
            before = len(lines_of(htop))
            await during(working, lambda: len(lines_of(htop)) > before, MINUTE_S)
            others = htop_samples(htop)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    if not ours.samples:
        raise BenchError("the console told nothing")
    if not others:
        raise BenchError("vllm-htop told nothing")
    end_at = others[-1].at
    return rows(
        Minute(
            ours=[sample for sample in ours.samples if sample.at <= end_at + 1.0],
            htop=others,
            log=[sample for sample in log_samples(log) if sample.at <= end_at],
            clients=clients.seen(end_at - MINUTE_S, end_at),
            bounds=bounds(url),
        )
    )


async def during(work: "asyncio.Task[None]", done: Callable[[], bool], most_s: float) -> None:
    """Until ``done``, or for ``most_s``. What ends the work meanwhile comes out."""
    deadline_s = time.monotonic() + most_s
    while not done() and time.monotonic() < deadline_s:
        await asyncio.wait([work], timeout=0.5)
        if work.done():
            work.result()


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def bounds(url: str) -> dict[str, list[float]]:
    """Of the buckets that percentiles are worked out of."""
    page = Page.read(httpx2.get(f"{url}/metrics", trust_env=False).text)
    return {name: sorted(page.buckets(vllm.HISTOGRAMS[name], lambda _: True)) for name in ("ttft", "itl")}


def words(span: tuple[int, int]) -> str:
    return f"{span[0]}–{span[1]}"


def heading() -> str:
    machine = describe()
    versions = {**(versions_of(VLLM) or {}), **(versions_of("vllm-htop") or {})}
    told = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "torch")
    return f"""# The console's figures of a real vLLM beside those of others

{machine["cpu"]}, {machine["cores"]} cores, {machine["memory_gib"]} GiB; {told}; Python {machine["python"]};
{time.strftime("%Y-%m-%d", time.gmtime())}. Written by `python bench/peer_numbers.py`.

vLLM on one core (`--enforce-eager`, four requests at once), {CLIENTS} clients that ask without pause,
prompts of {words(PROMPT_TOKENS)} and answers of {words(OUTPUT_TOKENS)} tokens; all of the same minute, on a
machine that does other things too.

Gauges are means of what was seen in it: ours once a second, vllm-htop's and the log's every ten. tokens/s are
of the whole minute: the mean of six averages over ten seconds each. Percentiles are over the minute: ours and
vllm-htop's (it has the 95th alone) out of vLLM's buckets, the clients' of each token as it came to them. `±`
is how far from it sampling may put ours (gauges: three standard errors; tokens/s: 5 %; percentiles: two
seconds more or less at the ends of the minute, or the width of the bucket where it is compared with what is
exact).

vllm-htop has no ITL: its TPOT finds `vllm:request_time_per_output_token_seconds`, the mean gap of each answer
that ended. The last row has it beside what the clients saw of the same. Ours is
`vllm:inter_token_latency_seconds`, of every gap.
"""


if __name__ == "__main__":
    sys.exit(main())
