"""``make serve-peers``: real vLLM and llama.cpp servers with the default model, small, until Ctrl-C.

``python bench/serve_peers.py [vllm] [llamacpp] [--log DIRECTORY]``: on free ports, on one core, each with
four requests at once. It prints what to connect to. However it ends, it ends them and what they started.
"""

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.processes import ServerProcess, end_tidily, free_port
from peers.servers import LLAMACPP, MODEL, VLLM, start_small, url_of, wait_ready

#: The one that is there at once first.
PEERS = (LLAMACPP, VLLM)
LOOK_S = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peers", nargs="*", metavar="PEER", help="vllm, llamacpp; default both")
    parser.add_argument("--log", type=Path, metavar="DIRECTORY", help="keep what they write in it")
    options = parser.parse_args()
    chosen = options.peers or list(PEERS)
    unknown = [name for name in chosen if name not in PEERS]
    if unknown:
        parser.error(f"{unknown[0]!r} is no peer that serves; allowed: {', '.join(PEERS)}")
    end_tidily()
    if options.log is not None:
        options.log.mkdir(parents=True, exist_ok=True)
    with ExitStack() as started:
        try:
            serve([name for name in PEERS if name in chosen], options.log, started)
        except KeyboardInterrupt:
            return 0
        except BenchError as error:
            print(f"serve_peers: {error}", file=sys.stderr)
            return 1


def serve(chosen: list[str], logs: Path | None, started: ExitStack) -> None:
    """Until one of them ends, which is a BenchError."""
    processes: dict[str, ServerProcess] = {}
    for name in chosen:
        port = free_port()
        print(f"{name}: starting on port {port} (llama.cpp seconds, vLLM a minute or two)", file=sys.stderr)
        process = start_small(name, port, logs / f"{name}.log" if logs else None)
        processes[name] = started.enter_context(process)
        ready_s = wait_ready(name, process, port)
        print(f"{name}: ready after {ready_s:.0f} s, process {process.pid}, model {MODEL}", file=sys.stderr)
        print(f"infer-console --connect {name}+{url_of(port)}", flush=True)
    while True:
        for name, process in processes.items():
            if process.process.poll() is not None:
                raise BenchError(f"{name} ended with {process.process.returncode}:\n{process.log_tail()}")
        time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main())
