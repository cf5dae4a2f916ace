"""What cannot be asked of a replica that is somebody else's server."""

from infer_engine.fleet.generation import Refusal, refuse


def not_ours(why: str) -> Refusal:
    """``why`` in words, what to do instead."""
    return refuse(409, "not_ours", "The replicas are servers that others start and end.", why)
