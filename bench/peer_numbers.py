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
from peers.witnesses import HTOP_S, MINUTE_S, OurConsole, htop_samples, log_samples, vllm_htop

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
        with OurConsole(url) as ours, vllm_htop(url, HTOP_S) as often:
            await during(working, lambda: False, WARM_UP_S)
            with vllm_htop(url, MINUTE_S) as seldom:
                # Its second line is about the minute since its first.
                await during(working, lambda: len(lines_of(seldom)) >= 2, 2.0 * MINUTE_S)
                whole, others = htop_samples(seldom)[-1], htop_samples(often)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    if not ours.samples:
        raise BenchError("the console told nothing")
    logged = [sample for sample in log_samples(log) if sample.at <= whole.at]
    # The log's seconds are whole ones.
    end_at = (logged[-1].at if logged else whole.at) + 1.0
    began_at = end_at - MINUTE_S
    seen = clients.seen(whole.at - MINUTE_S, whole.at)
    return rows(
        Minute(
            began_at=began_at,
            ours=[sample for sample in ours.samples if sample.at <= whole.at + 1.0],
            htop=[sample for sample in others if began_at <= sample.at <= end_at],
            log=[sample for sample in logged if began_at <= sample.at <= end_at],
            ours_whole=min(ours.samples, key=lambda sample: abs(sample.at - whole.at)),
            htop_whole=whole,
            clients=seen,
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

Gauges are means of what was seen in it: ours once a second, vllm-htop's every two, the log's every ten.
tokens/s are of a whole minute: the mean of ours at its end, ten seconds before, and so on. Percentiles are over a minute: ours and vllm-htop's out of vLLM's buckets,
the clients' of each token as it came to them. `±` is how far from it sampling may put ours (gauges: three
standard errors; tokens/s: 5 %; percentiles: two seconds more or less at the ends of the minute, or the width
of the bucket where it is compared with what is exact).

vllm-htop has no ITL: its TPOT finds `vllm:request_time_per_output_token_seconds`, the mean gap of each answer
that ended, which long answers and slow steps pull up. The last row has it beside what the clients saw of the
same. Ours is `vllm:inter_token_latency_seconds`, of every gap.
"""


if __name__ == "__main__":
    sys.exit(main())
