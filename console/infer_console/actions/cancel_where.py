"""Cancel a selection of requests, with the count that the operator expects."""

from infer_engine.protocol import CancelWhere, Command

from infer_console.actions.action import REASON, Action, text, whole
from infer_console.actions.params import Param, Values
from infer_console.state.picture import Picture

MAX_WHERE = 512
#: More than so many are not cancelled at once.
MOST = 100


def _build(_target: str | None, values: Values) -> Command:
    return CancelWhere(
        where=text(values, "where"), expect=whole(values, "expect"), reason=text(values, "reason")
    )


def _refuse(_picture: Picture, _target: str | None) -> str | None:
    return None


def _effect(_picture: Picture, _target: str | None, values: Values) -> list[str]:
    return [
        f"every live request that {text(values, 'where') or '…'} selects ends; its client gets an error",
        "refused where it is not exactly as many as expected",
    ]


def _count(_picture: Picture, _target: str | None, values: Values) -> str:
    expect = whole(values, "expect")
    return "" if expect is None else str(expect)


CANCEL_WHERE = Action(
    key="",
    name="cancel-where",
    title="Cancel a selection",
    danger="destructive",
    target="fleet",
    capability="cancel_where",
    params=(
        Param(
            name="where",
            kind="text",
            label="where",
            highest=MAX_WHERE,
            hint="like tenant=acme and age_s>60",
        ),
        Param(
            name="expect",
            kind="number",
            label="how many",
            lowest=0,
            highest=MOST,
            optional=True,
            step=1,
            hint="as many as are predicted, else none ends",
        ),
        REASON,
    ),
    build=_build,
    effect=_effect,
    refusal=_refuse,
    count=_count,
    asks=True,
    when_stale=True,
)
