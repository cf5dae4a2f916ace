"""A Ray cluster on this machine, as a process of its own: orders on stdin, an answer to each on stdout.

``head`` has no CPU, so that all replicas are on other nodes; token authentication is as the environment says.
"""

import json
import os
import signal
import sys
from typing import Any

import ray
from ray.cluster_utils import Cluster

STORE_BYTES = 80 << 20


def main() -> None:
    cluster = Cluster()
    cluster.add_node(num_cpus=0, object_store_memory=STORE_BYTES, include_dashboard=False)
    nodes: dict[str, Any] = {}
    answer(cluster.address)
    for line in sys.stdin:
        order, *words = json.loads(line)
        if order == "add":
            node = cluster.add_node(num_cpus=words[0], object_store_memory=STORE_BYTES)
            nodes[node.node_id] = node
            answer(node.node_id)
        elif order == "remove":
            cluster.remove_node(nodes.pop(words[0]), allow_graceful=False)
            answer(True)
        elif order == "kill-actor":
            connect(cluster)
            ray.kill(ray.get_actor(words[0]))
            answer(True)
        elif order == "actors":
            connect(cluster)
            answer(sorted(each["Name"] for each in actors() if each["State"] != "DEAD"))
        elif order == "kill-head":
            head = cluster.head_node.all_processes["gcs_server"][0].process
            head.send_signal(signal.SIGKILL)
            answer(True)
    os._exit(0)


def actors() -> list[dict[str, Any]]:
    return list(ray._private.state.actors().values())


def connect(cluster: Cluster) -> None:
    if not ray.is_initialized():
        ray.init(address=cluster.address, namespace="infer-console", log_to_driver=False)


def answer(what: object) -> None:
    OUT.write(json.dumps(what) + "\n")
    OUT.flush()


if __name__ == "__main__":
    OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main()
