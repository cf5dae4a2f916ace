"""Cancel one request."""

from infer_engine.protocol import Cancel, Command, RequestRow

from infer_console.actions.action import REASON, Action, text
from infer_console.actions.params import Values
from infer_console.state.picture import Picture


def find_request(picture: Picture, request: str | None) -> RequestRow | None:
    """The row of a request wherever it is, or as it ended; None when neither a roster that is looked at nor
    the list of all has it."""
    for shown in picture.replicas.values():
        if request in shown.rows:
            return shown.rows[request or ""]
    listing = picture.listing
    listed = (*listing.rows, *listing.ended) if listing is not None else ()
    return next((row for row in (*picture.held, *listed) if row.id == request), None)


def _build(_target: str | None, values: Values) -> Command:
    return Cancel(reason=text(values, "reason"))


def _refuse(picture: Picture, target: str | None) -> str | None:
    row = find_request(picture, target)
    if row is None:
        return f"request {target} is not there any more"
    return f"request {target} has finished" if row.state == "finished" else None


def _effect(picture: Picture, target: str | None, _values: Values) -> list[str]:
    row = find_request(picture, target)
    if row is None:
        return [f"request {target} is not there any more"]
    where = f" on {row.replica}" if row.replica else ""
    lines = [f"{target} ({row.state}{where}) ends now; its client gets the error cancelled_by_operator"]
    if row.state == "running":
        lines.append(f"{row.kv_blocks:,} blocks are free by the next step")
        lines.append(f"{row.generated_tokens:,} generated tokens stay with the client, the rest is lost")
    else:
        lines.append("it holds no blocks; those behind it move up")
    return lines


CANCEL = Action(
    key="X",
    name="cancel",
    title="Cancel",
    danger="destructive",
    target="request",
    capability="cancel",
    params=(REASON,),
    build=_build,
    effect=_effect,
    refusal=_refuse,
    when_stale=True,
)
