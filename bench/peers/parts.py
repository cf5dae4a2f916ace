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
from infer_engine.benchmark.processes import ServerProcess, free_port
from infer_engine.benchmark.results import Result, result
from infer_engine.benchmark.served import USEFUL, measure_client
from infer_engine.benchmark.setup import Setup
from infer_engine.benchmark.workload import workload
from infer_engine.model.store import resolve
from infer_engine.settings import DEFAULT_MODEL
from peers.place import model_dir, python_of, why_missing

HERE = Path(__file__).parent
#: Of weights and activations of transformers and vLLM: the reference type, as bf16 needs hardware for it.
DTYPE = os.environ.get("INFER_BENCH_PEER_DTYPE", "float32")
STATIC, CONTINUOUS = "transformers, static batch", "transformers, continuous batching"
VLLM, LLAMACPP = "vLLM", "llama.cpp server"
TRANSFORMERS_TIMEOUT_S = 1500.0
#: Compiling takes minutes.
VLLM_READY_S = 600.0
VLLM_CONTEXT = 2048
LLAMACPP_READY_S = 120.0
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
    _need("vllm")
    port = free_port()
    python = python_of("vllm")
    command = [str(python.with_name("vllm")), "serve", str(model_dir()), "--served-model-name", "smollm2"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", DTYPE]
    command += ["--max-model-len", str(VLLM_CONTEXT), "--max-num-seqs", "32"]
    if setup.shrink > 1:
        command.append("--enforce-eager")
    environment = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{setup.threads - 1}",
        "OMP_NUM_THREADS": str(setup.threads),
        "PYTHONPATH": "",
        # It starts compilers and workers by name.
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    with ServerProcess(command, environment=environment) as process:
        base_url = f"http://127.0.0.1:{port}"
        ready_s = process.wait_until_ok(f"{base_url}/health", VLLM_READY_S)
        setup.say(f"  {VLLM}: ready after {ready_s:.0f} s")
        results = asyncio.run(measure_client(Client(base_url, "smollm2"), setup, VLLM))
    how = "eager" if setup.shrink > 1 else "compiled"
    return [
        *results,
        result("ready after", "s", [ready_s], subject=VLLM, note=f"{DTYPE}, {setup.threads} threads, {how}"),
    ]


def llamacpp(setup: Setup) -> list[Result]:
    _need("llamacpp")
    port = free_port()
    command = [str(python_of("llamacpp")), str(HERE / "llamacpp_server.py"), str(resolve(DEFAULT_MODEL))]
    command += [str(port), str(setup.threads), str(LLAMACPP_SLOTS), str(LLAMACPP_CONTEXT)]
    with ServerProcess(command, environment={"PYTHONPATH": ""}, lifeline=True) as process:
        base_url = f"http://127.0.0.1:{port}"
        ready_s = process.wait_until_ok(f"{base_url}/health", LLAMACPP_READY_S)
        results = asyncio.run(measure_client(Client(base_url, "smollm2"), setup, LLAMACPP))
    note = f"the same GGUF, Q4_1, {setup.threads} threads, {LLAMACPP_SLOTS} slots"
    return [*results, result("ready after", "s", [ready_s], subject=LLAMACPP, note=note)]


PEERS: tuple[Part, ...] = (
    Part("transformers_static", "transformers' generate, one batch in lockstep", 360, static),
    Part("transformers_continuous", "transformers' continuous batching", 330, continuous),
    Part("vllm", "vLLM's CPU server, compiled", 380, vllm),
    Part("llamacpp", "llama.cpp's server on the same GGUF", 200, llamacpp),
)
