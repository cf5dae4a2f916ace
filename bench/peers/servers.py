"""The peers that serve over HTTP, as processes: how each is started, and on which cores.

Each is a ``ServerProcess``: use it as a context manager, which ends the whole process group.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.processes import ServerProcess
from infer_engine.model.store import resolve
from infer_engine.settings import DEFAULT_MODEL
from peers.place import model_dir, python_of, why_missing

#: What both call the default model.
MODEL = "smollm2"
VLLM, LLAMACPP = "vllm", "llamacpp"
#: Compiling takes minutes.
READY_S = {VLLM: 600.0, LLAMACPP: 120.0}
DTYPE = os.environ.get("INFER_BENCH_PEER_DTYPE", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSize:
    """``kv_gib`` is the pool; ``kv_blocks`` makes it smaller, to be seen filling."""

    cores: Sequence[int]
    max_running: int = 32
    context: int = 2048
    kv_gib: int = 2
    kv_blocks: int | None = None
    block_size: int | None = None
    #: Starts three times as fast, and decodes slower.
    eager: bool = False


def start_vllm(port: int, size: VllmSize, *, modest: bool = False, log: Path | None = None) -> ServerProcess:
    """``modest``: others work on this machine too. ``log`` gets what it writes, its line of statistics every
    ten seconds included. BenchError where it is not built."""
    _need(VLLM)
    python = python_of(VLLM)
    command = [str(python.with_name("vllm")), "serve", str(model_dir()), "--served-model-name", MODEL]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", DTYPE]
    command += ["--max-model-len", str(size.context), "--max-num-seqs", str(size.max_running)]
    command += ["--disable-uvicorn-access-log"]
    if size.kv_blocks is not None:
        command += ["--num-gpu-blocks-override", str(size.kv_blocks)]
    if size.block_size is not None:
        command += ["--block-size", str(size.block_size)]
    if size.eager:
        command.append("--enforce-eager")
    environment = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CPU_KVCACHE_SPACE": str(size.kv_gib),
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, size.cores)),
        "OMP_NUM_THREADS": str(len(size.cores)),
        "PYTHONPATH": "",
        # It starts compilers and workers by name.
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    prefix = _modestly(size.cores) if modest else []
    return ServerProcess([*prefix, *command], environment=environment, log=log)


def start_llamacpp(
    port: int,
    *,
    threads: int,
    slots: int,
    context: int,
    cores: Sequence[int] = (),
    modest: bool = False,
    log: Path | None = None,
) -> ServerProcess:
    """``context`` tokens a slot. It ends with this process, however that ends."""
    _need(LLAMACPP)
    script = Path(__file__).with_name("llamacpp_server.py")
    command = [str(python_of(LLAMACPP)), str(script), str(resolve(DEFAULT_MODEL))]
    command += [str(port), str(threads), str(slots), str(context)]
    prefix = _modestly(cores) if modest else []
    return ServerProcess([*prefix, *command], environment={"PYTHONPATH": ""}, lifeline=True, log=log)


def last_core() -> list[int]:
    """One core for a server that shares the machine."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
    return [max(usable)]


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def wait_ready(name: str, process: ServerProcess, port: int) -> float:
    """Seconds since its start; BenchError with the end of its log when it ends first or takes too long."""
    return process.wait_until_ok(f"{url_of(port)}/health", READY_S[name])


def _need(peer: str) -> None:
    missing = why_missing(peer)
    if missing is not None:
        raise BenchError(missing)


def _modestly(cores: Sequence[int]) -> list[str]:
    pinned = ["taskset", "-c", ",".join(map(str, cores))] if cores and shutil.which("taskset") else []
    return ["nice", "-n", "5", *pinned]


def small_vllm() -> VllmSize:
    """For looking at it, not for measuring: on one core, a minute to start, and a pool that fills."""
    return VllmSize(
        cores=last_core(), max_running=4, context=512, kv_gib=1, kv_blocks=48, block_size=32, eager=True
    )


def start_small(name: str, port: int, log: Path | None = None) -> ServerProcess:
    """Either peer as it is started for tests: modestly, four requests at once, 512 tokens each."""
    if name == VLLM:
        return start_vllm(port, small_vllm(), modest=True, log=log)
    return start_llamacpp(port, threads=1, slots=4, context=512, cores=last_core(), modest=True, log=log)
