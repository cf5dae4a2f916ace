"""A fleet on a Ray cluster: what the cluster has decides what nobody said of the replicas."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from infer_engine.replica.launch_ray import RayReplicas, require_ray
from infer_engine.replica.ray_messages import Node
from infer_engine.replica.ray_room import device_for, gpus_of, threads_for
from infer_engine.settings import ServerSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OnRay:
    """``settings`` with what the cluster decides, and its launcher, connected; the settings as they are, and
    None, where the launcher is another."""

    settings: ServerSettings
    replicas: RayReplicas | None = None

    async def close(self) -> None:
        if self.replicas is not None:
            await self.replicas.close()


async def enter_ray(settings: ServerSettings) -> OnRay:
    """To be closed. NoClusterError when there is no way into the cluster."""
    if settings.launcher != "ray":
        return OnRay(settings)
    require_ray()
    replicas = RayReplicas(settings.name, settings.ray_address or os.environ.get("RAY_ADDRESS") or "auto")
    nodes = await replicas.connect()
    settings = settled(settings, nodes)
    log.info(
        "Ray cluster of %d nodes: each replica takes %d CPU and %d GPU",
        len(nodes),
        settings.replica.threads,
        gpus_of(settings.replica),
    )
    return OnRay(settings, replicas)


def settled(settings: ServerSettings, nodes: Sequence[Node]) -> ServerSettings:
    """With a device and threads, where nobody said: whatever all replicas fit with."""
    device = device_for(settings.replica.device, settings.replicas, nodes)
    replica = structs.replace(settings.replica, device=device)
    threads = replica.threads or threads_for(settings.replicas, nodes, gpus_of(replica))
    return structs.replace(settings, replica=structs.replace(replica, threads=threads))
