"""A fleet on a Ray cluster: what the cluster has decides what nobody said of the replicas."""

import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Sequence

from msgspec import structs

from infer_engine.replica.launch_ray import RayReplicas, require_ray
from infer_engine.replica.ray_messages import Node
from infer_engine.replica.ray_room import device_for, gpus_of, threads_for
from infer_engine.settings import ServerSettings

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def on_ray(settings: ServerSettings) -> AsyncGenerator[tuple[ServerSettings, RayReplicas | None]]:
    """The settings with what the cluster decides, and its launcher, connected; as they are and None where the
    launcher is another. NoClusterError when there is no way into the cluster."""
    if settings.launcher != "ray":
        yield settings, None
        return
    require_ray()
    replicas = RayReplicas(settings.name, settings.ray_address or os.environ.get("RAY_ADDRESS") or "auto")
    nodes = await replicas.connect()
    try:
        settings = settled(settings, nodes)
        log.info(
            "Ray cluster of %d nodes: each replica takes %d CPU and %d GPU",
            len(nodes),
            settings.replica.threads,
            gpus_of(settings.replica),
        )
        yield settings, replicas
    finally:
        await replicas.close()


def settled(settings: ServerSettings, nodes: Sequence[Node]) -> ServerSettings:
    """With a device and threads, where nobody said: whatever all replicas fit with."""
    device = device_for(settings.replica.device, settings.replicas, nodes)
    replica = structs.replace(settings.replica, device=device)
    threads = replica.threads or threads_for(settings.replicas, nodes, gpus_of(replica))
    return structs.replace(settings, replica=structs.replace(replica, threads=threads))
