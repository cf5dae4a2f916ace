"""What a replica takes of a Ray cluster, and how many of them fit: in CPUs and GPUs, as Ray counts them."""

import math
from collections.abc import Sequence

from infer_engine.replica.ray_messages import Node
from infer_engine.settings import Device, ReplicaSettings


def device_for(device: Device, replicas: int, nodes: Sequence[Node]) -> Device:
    """``auto`` means a GPU each where the cluster has as many, else none: Ray shows a process only the GPUs
    that it was given."""
    if device != "auto":
        return device
    return "cuda" if sum(math.floor(node.gpus) for node in nodes) >= max(1, replicas) else "cpu"


def fits(node: Node, threads: int, gpus: int) -> int:
    """How many replicas of that size Ray puts on a node."""
    by_cpu = math.floor(node.cpus / threads)
    return by_cpu if not gpus else min(by_cpu, math.floor(node.gpus / gpus))


def threads_for(replicas: int, nodes: Sequence[Node], gpus: int) -> int:
    """The most threads with which all of them fit; 1 where they do not fit at all."""
    most = max((math.floor(node.cpus) for node in nodes), default=1)
    for threads in range(most, 1, -1):
        if sum(fits(node, threads, gpus) for node in nodes) >= replicas:
            return threads
    return 1


def gpus_of(settings: ReplicaSettings) -> int:
    return 1 if settings.device == "cuda" else 0


def shortage(threads: int, gpus: int, nodes: Sequence[Node]) -> str:
    """Why one waits for room, in words."""
    wanted = f"{threads} CPU" + (f" and {gpus} GPU" if gpus else "")
    if not any(fits(node, threads, gpus) for node in nodes):
        most = max((node.cpus for node in nodes), default=0.0)
        return f"no node of the Ray cluster is large enough: it needs {wanted}, the largest has {most:g} CPU"
    return f"no node of the Ray cluster has room: it needs {wanted}, and what there is, is taken"
