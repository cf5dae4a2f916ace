"""The peers, part by part: the same workload, threads and tokens; each alone on the machine.

transformers gets all requests at once, which favours it: the servers have to wait for arrivals.
"""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from infer_engine.benchmark.client import Client
from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.parts import Part
from infer_engine.benchmark.processes import free_port
from infer_engine.benchmark.results import Result, result
from infer_engine.benchmark.served import USEFUL, measure_client
from infer_engine.benchmark.setup import Setup
from infer_engine.benchmark.workload import workload
from peers import servers
from peers.place import model_dir, python_of, why_missing
from peers.servers import DTYPE, MODEL, VllmSize, start_llamacpp, start_vllm, url_of, wait_ready

HERE = Path(__file__).parent
STATIC, CONTINUOUS = "transformers, static batch", "transformers, continuous batching"
VLLM, LLAMACPP = "vLLM", "llama.cpp server"
TRANSFORMERS_TIMEOUT_S = 1500.0
LLAMACPP_SLOTS, LLAMACPP_CONTEXT = 16, 1024


def _need(peer: str) -> None:
    missing = why_missing(peer)
    if missing is not None:
        raise BenchError(missing)


def static(setup: Setup) -> list[Result]:
    return _transformers(
        setup, "static", STATIC, "one padded batch in lockstep, all requests at once, no HTTP"
    )


def continuous(setup: Setup) -> list[Result]:
    return _transformers(setup, "continuous", CONTINUOUS, "paged|sdpa, all requests at once, no HTTP")


def _transformers(setup: Setup, mode: str, subject: str, how: str) -> list[Result]:
    _need("transformers")
    repeats = [workload(repeat, shrink=setup.shrink) for repeat in range(setup.repeats)]
    asked: dict[str, Any] = {
        "model": str(model_dir()),
        "threads": setup.threads,
        "dtype": DTYPE,
        "mode": mode,
        "repeats": [
            [{"prompt": ask.prompt, "output_tokens": ask.output_tokens} for ask in asks] for asks in repeats
        ],
    }
    lines = _run_transformers(json.dumps(asked), setup.threads)
    rates: list[float] = []
    for asks, line in zip(repeats, lines, strict=True):
        wanted = [ask.output_tokens for ask in asks]
        if line["output_tokens"] != wanted:
            raise BenchError(f"{wanted} tokens were asked for, {line['output_tokens']} came")
        rates.append(sum(wanted) / line["seconds"])
        setup.say(f"  {subject}: {rates[-1]:.1f} useful tokens/s")
    return [
        result(USEFUL, "tokens/s", rates, subject=subject, note=f"{DTYPE}, {setup.threads} threads, {how}")
    ]


def _run_transformers(asked: str, threads: int) -> list[dict[str, Any]]:
    command = [str(python_of("transformers")), str(HERE / "transformers_generate.py")]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": ""},
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(asked, timeout=TRANSFORMERS_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"not done within {TRANSFORMERS_TIMEOUT_S:.0f} s") from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
    if process.returncode:
        raise BenchError(f"transformers ended with {process.returncode}: {errors[-1500:]}")
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def vllm(setup: Setup) -> list[Result]:
    port, eager = free_port(), setup.shrink > 1
    size = VllmSize(cores=range(setup.threads), eager=eager)
    with start_vllm(port, size) as process:
        ready_s = wait_ready(servers.VLLM, process, port)
        setup.say(f"  {VLLM}: ready after {ready_s:.0f} s")
        results = asyncio.run(measure_client(Client(url_of(port), MODEL), setup, VLLM))
    how = "eager" if eager else "compiled"
    return [
        *results,
        result("ready after", "s", [ready_s], subject=VLLM, note=f"{DTYPE}, {setup.threads} threads, {how}"),
    ]


def llamacpp(setup: Setup) -> list[Result]:
    port = free_port()
    with start_llamacpp(
        port, threads=setup.threads, slots=LLAMACPP_SLOTS, context=LLAMACPP_CONTEXT
    ) as process:
        ready_s = wait_ready(servers.LLAMACPP, process, port)
        results = asyncio.run(measure_client(Client(url_of(port), MODEL), setup, LLAMACPP))
    note = f"the same GGUF, Q4_1, {setup.threads} threads, {LLAMACPP_SLOTS} slots"
    return [*results, result("ready after", "s", [ready_s], subject=LLAMACPP, note=note)]


PEERS: tuple[Part, ...] = (
    Part("transformers_static", "transformers' generate, one batch in lockstep", 360, static),
    Part("transformers_continuous", "transformers' continuous batching", 330, continuous),
    Part("vllm", "vLLM's CPU server, compiled", 380, vllm),
    Part("llamacpp", "llama.cpp's server on the same GGUF", 200, llamacpp),
)
