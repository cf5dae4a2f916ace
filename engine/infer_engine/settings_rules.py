"""Which settings go together: bounds of one alone are in the table of ``settings``."""

from typing import TYPE_CHECKING

from infer_engine.foreign.address import parse_address
from infer_engine.planner import Deployment

if TYPE_CHECKING:
    from infer_engine.settings import ServerSettings

#: Replicas that are processes; simulated ones may be more.
MOST_PROCESSES = 64
DEFAULT_REPLICAS = 2


def check_together(settings: "ServerSettings") -> None:
    """ValueError naming the setting that does not go with the others."""
    _check_upstreams(settings)
    deployment = settings.deployment
    _check_joining(settings, deployment)
    _check_replicas(settings, deployment)
    _check_tls(settings)
    if settings.ray_address is not None and settings.launcher != "ray":
        raise ValueError("ray_address is for launcher ray, which is not given")


def _check_upstreams(settings: "ServerSettings") -> None:
    places: set[tuple[str, int]] = set()
    for url in settings.upstream_urls:
        address = parse_address(url)
        place = ("" if address.is_loopback else address.host, address.port)
        if place in places:
            raise ValueError(f"upstreams: {address.place} is named twice; each server is one replica")
        places.add(place)
    if not places:
        if settings.own_replicas:
            raise ValueError(f"own_replicas is {settings.own_replicas}: it is for those beside upstreams")
        return
    if settings.simulate is not None:
        raise ValueError("upstreams and simulate were given: a fleet is one or the other")
    if settings.launcher is not None:
        raise ValueError(f"launcher is {settings.launcher}; upstreams are launched by nobody here")
    if settings.join_listen is not None:
        raise ValueError("join_listen is for replicas of our engine; with upstreams there are none")
    if settings.replicas not in (DEFAULT_REPLICAS, len(places)):
        raise ValueError(
            f"replicas is {settings.replicas}; with upstreams there are as many as are named, "
            "and own_replicas says how many of our engine run beside them"
        )


def _check_joining(settings: "ServerSettings", deployment: Deployment | None) -> None:
    if settings.replicas == 0 and settings.join_listen is None:
        raise ValueError("replicas is 0, which is for a server that others join: join_listen is not given")
    if (settings.join_listen is None) != (settings.join_keys is None):
        raise ValueError("join_listen and join_keys belong together, and one of them is not given")
    if settings.join_key is not None and settings.join_listen is None:
        raise ValueError("join_key is for join_listen, which is not given")
    if deployment is not None and settings.join_listen is not None:
        raise ValueError("join_listen is for real replicas; simulated ones cannot be joined")


def _check_replicas(settings: "ServerSettings", deployment: Deployment | None) -> None:
    """How many there may be, and who launches them."""
    if deployment is None and settings.replicas > MOST_PROCESSES:
        raise ValueError(
            f"replicas is {settings.replicas}; at most {MOST_PROCESSES} are allowed unless they are simulated"
        )
    if settings.max_replicas is not None and settings.max_replicas < settings.replicas:
        raise ValueError(
            f"max_replicas is {settings.max_replicas}; it must be at least replicas ({settings.replicas})"
        )
    if deployment is None and settings.launcher == "inproc":
        raise ValueError("launcher is inproc, which is for simulated replicas: simulate is not given")
    if deployment is not None and settings.launcher not in (None, "inproc"):
        raise ValueError(f"launcher is {settings.launcher}; simulated replicas are launched inproc")
    for name in ("device", "dtype"):
        given = getattr(settings.replica, name)
        if deployment is not None and given != "auto":
            raise ValueError(f"{name} is {given}; simulated replicas have that of what simulate names")
    if deployment is None and settings.speed != 1.0:
        raise ValueError(
            f"speed is {settings.speed:g}, which is for simulated replicas: simulate is not given"
        )


def _check_tls(settings: "ServerSettings") -> None:
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise ValueError("tls_cert and tls_key belong together, and one of them is not given")
    if settings.tls_client_ca is not None and settings.tls_cert is None:
        raise ValueError("tls_client_ca needs tls_cert and tls_key")
    if settings.tls_cert is not None and settings.control_listen is None:
        raise ValueError("tls_cert is for control_listen, which is not given")
