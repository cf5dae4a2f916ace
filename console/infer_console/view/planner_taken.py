"""Asking the planner for what is watched: the engine's model, GPUs and marks, as far as it tells them."""

from infer_engine.planner import PlanError, model_named, parse_deployment
from infer_engine.protocol import Kv

from infer_console.planning.fields import GPU, MODEL
from infer_console.planning.guess import guess_gpu, guess_model
from infer_console.planning.live import live_figures
from infer_console.state.picture import Picture
from infer_console.view.planner_form import PlannerForm


def take_over(form: PlannerForm, picture: Picture, replica: str | None) -> list[str]:
    """Fill in what is known; returns the names of the fields that are."""
    known = {**_device(picture, replica), **_deployment(picture, replica), **_marks(picture, replica)}
    for name, text in known.items():
        edited = form.field(name)
        edited.text, edited.fresh = text, True
    form.work_out()
    return [form.field(name).param.label for name in known]


def _deployment(picture: Picture, replica: str | None) -> dict[str, str]:
    fleet = picture.fleet
    if fleet is None:
        return {}
    try:
        if fleet.simulation is None:
            size = live_figures(picture, replica).kv_bytes_per_token
            model = guess_model(fleet.model, size)
            return {MODEL: model, **_kv_type(model, size)} if model is not None else {}
        one = parse_deployment(fleet.simulation.deployment)
    except PlanError:
        return {}
    return {MODEL: one.model.name, GPU: one.gpu.name, "gpus": str(one.gpus)}


def _kv_type(model: str, kv_bytes_per_token: int | None) -> dict[str, str]:
    """Where K and V have another type than the 16 bits of a preset."""
    times = (kv_bytes_per_token or 0) / model_named(model).kv_bytes_per_token
    return {"kv": "fp32"} if times == 2 else {"kv": "fp8"} if times == 0.5 else {}


def _device(picture: Picture, replica: str | None) -> dict[str, str]:
    """The GPUs under the replica that is looked at, else under the first that tells them."""
    looked_at = picture.replicas.get(replica) if replica is not None else None
    for each in [looked_at] if looked_at is not None else picture.replicas.values():
        guessed = guess_gpu(each.status.device or "")
        if guessed is not None:
            return {GPU: guessed[0], "gpus": str(guessed[1])}
    return {}


def _marks(picture: Picture, replica: str | None) -> dict[str, str]:
    """Of the replica that is looked at, else of the first that tells them."""
    looked_at = picture.replicas.get(replica) if replica is not None else None
    for each in [looked_at] if looked_at is not None else picture.replicas.values():
        kv = each.status.kv
        found = {"headroom": _percent(kv, kv.admit_limit), "batch_headroom": _percent(kv, kv.batch_limit)}
        known = {name: text for name, text in found.items() if text is not None}
        if known:
            return known
    return {}


def _percent(kv: Kv, limit: int | None) -> str | None:
    if not kv.total or limit is None:
        return None
    return f"{max(0.0, 100 * (1 - limit / kv.total)):.3g}"
