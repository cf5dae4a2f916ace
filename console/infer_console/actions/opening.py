"""What a key means now: several actions share one, and some dialogs start from what there is."""

from infer_console.actions.headroom import present_headroom
from infer_console.actions.params import Given
from infer_console.actions.scale import present_replicas
from infer_console.actions.shed import is_shed
from infer_console.state.picture import Picture


def is_out(picture: Picture, replica: str | None) -> bool:
    """Drained, or about to be."""
    shown = picture.replicas.get(replica or "")
    return shown is not None and shown.status.state in ("draining", "drained")


def switched(name: str, picture: Picture, replica: str | None) -> str:
    """The action that a key stands for: what is on is turned off, what is fenced is released."""
    shown = picture.replicas.get(replica or "")
    if name == "inject" and picture.fleet is not None and picture.fleet.traffic.running:
        return "inject-stop"
    if name == "shed" and is_shed(picture):
        return "shed-off"
    if name == "fence" and shown is not None and shown.status.state == "fenced":
        return "release"
    return name


def given_now(name: str, picture: Picture, target: str | None) -> Given:
    """Present values that a dialog starts from."""
    if name == "scale":
        now = present_replicas(picture)
        return {} if now is None else {"replicas": str(now)}
    if name == "headroom":
        replica = picture.replicas.get(target or "")
        kv = replica.status.kv if replica is not None else None
        return {"headroom": (present_headroom(kv) if kv is not None else None) or "10%"}
    return {}
