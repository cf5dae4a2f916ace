"""Run by the llamacpp environment: llama.cpp's own server until SIGTERM, or until stdin ends.

python llamacpp_server.py FILE.gguf PORT THREADS SLOTS CONTEXT_PER_SLOT
"""

import sys

from xllamacpp import CommonParams, Server


def main() -> None:
    path, (port, threads, slots, context) = sys.argv[1], map(int, sys.argv[2:])
    params = CommonParams()
    params.model.path = path
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = slots * context
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.endpoint_metrics = True
    params.endpoint_slots = True
    _server = Server(params)  # serves on threads of its own, for as long as it is referred to
    sys.stdin.read()


if __name__ == "__main__":
    main()
