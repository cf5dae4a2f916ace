"""``make record-pages``: what real vLLM and llama.cpp servers tell before, during and after a few requests,
as the files that the fast tests read.

``python bench/record_pages.py [vllm] [llamacpp] [--into DIRECTORY]``. vLLM runs five requests of which four
fit, llama.cpp six. Kept is what the servers wrote, less what nothing reads (series that are not theirs, when
each was created) and where the model lies on this machine. Figures that tests expect of the pages have to be
looked up again in ``tests/console/sources/foreign/`` afterwards.
"""

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx2
from infer_engine.benchmark.client import Client
from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.processes import ServerProcess, end_tidily, free_port
from infer_engine.benchmark.workload import Ask, text
from infer_engine.foreign.adapters import ADAPTERS, read
from infer_engine.foreign.asking import Answer
from infer_engine.foreign.reading import Reading
from infer_engine.model.store import resolve
from infer_engine.settings import DEFAULT_MODEL
from peers.place import model_dir
from peers.servers import (
    LLAMACPP,
    MODEL,
    VLLM,
    VllmSize,
    last_core,
    start_llamacpp,
    start_vllm,
    url_of,
    wait_ready,
)

PAGES = Path(__file__).parents[1] / "tests/console/sources/foreign/pages"
FIT, CONTEXT = 4, 2048
REQUESTS = {VLLM: 5, LLAMACPP: 6}
PROMPT_TOKENS, OUTPUT_TOKENS = 72, 40
BUSY_S, LOAD_S = 120.0, 600.0
POLL_S = 0.2
#: Paths whose answers change, and those told once, by the ending of their files.
CHANGING = {VLLM: {"/metrics": "metrics"}, LLAMACPP: {"/metrics": "metrics", "/slots": "slots"}}
LASTING = {VLLM: {"/version": "version", "/v1/models": "models"}, LLAMACPP: {"/props": "props"}}
_READ = re.compile(rb"(# TYPE )?(vllm:|llamacpp:|process_start_time_seconds)")
_CREATED = re.compile(rb"(# TYPE )?\S+_created\b")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peers", nargs="*", metavar="PEER", help="vllm, llamacpp; default both")
    parser.add_argument("--into", type=Path, default=PAGES, metavar="DIRECTORY")
    options = parser.parse_args()
    chosen = options.peers or list(REQUESTS)
    unknown = [name for name in chosen if name not in REQUESTS]
    if unknown:
        parser.error(f"{unknown[0]!r} is no peer that serves; allowed: {', '.join(REQUESTS)}")
    end_tidily()
    options.into.mkdir(parents=True, exist_ok=True)
    try:
        for name in chosen:
            record(name, options.into)
    except (BenchError, httpx2.HTTPError) as error:
        print(f"record_pages: {error!r}", file=sys.stderr)
        return 1
    return 0


def record(name: str, into: Path) -> None:
    port = free_port()
    print(f"{name}: starting", file=sys.stderr)
    with start(name, port) as process:
        wait_ready(name, process, port)
        asyncio.run(Recorder(name, url_of(port), into).record())


def start(name: str, port: int) -> ServerProcess:
    if name == VLLM:
        size = VllmSize(cores=last_core(), max_running=FIT, context=CONTEXT, kv_gib=1, eager=True)
        return start_vllm(port, size, modest=True)
    return start_llamacpp(port, threads=1, slots=FIT, context=CONTEXT, cores=last_core(), modest=True)


class Recorder:
    def __init__(self, name: str, url: str, into: Path) -> None:
        self._name, self._url, self._into = name, url, into

    async def record(self) -> None:
        async with httpx2.AsyncClient(base_url=self._url, trust_env=False, timeout=30.0) as http:
            await self._keep(http, "before", lambda reading: True)
            for path, ending in LASTING[self._name].items():
                self._write(f"{self._name}.{ending}", (await http.get(path)).content)
            async with Client(self._url, MODEL) as client:
                asks = [
                    Ask(text(number * 191, PROMPT_TOKENS), OUTPUT_TOKENS)
                    for number in range(REQUESTS[self._name])
                ]
                working = asyncio.create_task(client.load(asks, LOAD_S))
                try:
                    await self._keep(http, "busy", self._is_busy)
                    await working
                finally:
                    working.cancel()
            await self._keep(http, "after", lambda reading: not reading.engines[0].running)

    def _is_busy(self, reading: Reading) -> bool:
        """As many as fit run, the others wait, and all that run have answered something."""
        (engine,) = reading.engines
        return (
            engine.running == FIT
            and engine.waiting == REQUESTS[self._name] - FIT
            and engine.counts.counters.get("steps", 0) > OUTPUT_TOKENS / 4
            and all(row.generated_tokens for row in engine.rows or ())
        )

    async def _keep(self, http: httpx2.AsyncClient, moment: str, wanted: Callable[[Reading], bool]) -> None:
        """The pages of the first moment that is ``wanted``."""
        adapter = ADAPTERS[self._name]  # type: ignore[index]
        deadline_s = time.monotonic() + BUSY_S
        while True:
            given = {path: await http.get(path) for path in adapter.paths}
            if wanted(read(adapter, as_answers(given))):
                break
            if time.monotonic() > deadline_s:
                raise BenchError(f"{self._name} was not {moment} within {BUSY_S:.0f} s")
            await asyncio.sleep(POLL_S)
        for path, ending in CHANGING[self._name].items():
            self._write(f"{self._name}-{moment}.{ending}", given[path].content)

    def _write(self, name: str, content: bytes) -> None:
        content = kept(content) if name.endswith(".metrics") else content
        (self._into / name).write_bytes(without_places(content))
        print(f"{self._into.name}/{name}: {len(content)} bytes", file=sys.stderr)


def as_answers(given: Mapping[str, httpx2.Response]) -> dict[str, Answer]:
    return {path: Answer(path, response.status_code, response.content) for path, response in given.items()}


def kept(page: bytes) -> bytes:
    """What the server tells of itself; neither its web framework nor when its counters were made."""
    lines = [
        line for line in page.splitlines(keepends=True) if _READ.match(line) and not _CREATED.match(line)
    ]
    return b"".join(lines)


def without_places(content: bytes) -> bytes:
    """Nothing that tells where this machine keeps the model."""
    for place in (model_dir(), resolve(DEFAULT_MODEL).parent):
        content = content.replace(str(place).encode(), b"/models")
    return content


if __name__ == "__main__":
    sys.exit(main())
