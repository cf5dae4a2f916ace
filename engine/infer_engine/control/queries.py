"""What can be asked of each read, as its description has it; the reads themselves check it."""

from typing import Any, get_args

from infer_engine.control.routes import Query
from infer_engine.protocol import MOST_SENTENCE, RequestState


def _text(name: str, says: str, *, required: bool = False) -> Query:
    return Query(name=name, says=says, schema={"type": "string"}, required=required)


def _number(name: str, says: str, lowest: int, highest: int) -> Query:
    schema: dict[str, Any] = {"type": "integer", "minimum": lowest, "maximum": highest}
    return Query(name=name, says=says, schema=schema)


REQUESTS = (
    Query(
        name="state",
        says="only those in this state",
        schema={"type": "string", "enum": sorted(get_args(RequestState))},
    ),
    _text("replica", "only those on this replica"),
    _number("limit", "at most so many: the oldest of those that wait and of those that run", 1, 10_000),
    Query(
        name="ended_after",
        says="beside them, in `ended`, those that finished after this moment (Unix seconds): the last 200",
        schema={"type": "number"},
    ),
)
EVENTS = (_number("limit", "the newest so many", 1, 10_000),)
WATCH = (
    _text("replicas", "ids, comma-separated; all when not given"),
    _text("detail", "roster, blocks, steps, comma-separated"),
    Query(name="hz", says="how often, from 0.1 to 20", schema={"type": "number"}),
    _text("others", "what of replicas that are not named: status"),
    _text("since", "the id of the last message that was received, to go on after it"),
    _text("actor", "who watches, as others are shown it beside whom the server knows"),
)
HISTORY = (
    Query(name="seconds", says="how far back, at most an hour", schema={"type": "number"}),
    Query(name="step", says="seconds between two points", schema={"type": "number"}),
    _text("replicas", "ids, comma-separated; all when not given and there are not too many"),
)
RECORDER = (
    Query(name="from", says="the first moment, in Unix seconds", schema={"type": "number"}),
    Query(name="to", says="the last moment", schema={"type": "number"}),
    Query(
        name="parts",
        says="`all`, or the timelines of requests alone",
        schema={"type": "string", "enum": ["all", "timelines"]},
    ),
)
TOKENS = (_text("requests", "up to 16 ids, comma-separated", required=True),)
TOKENIZE = (
    Query(
        name="text",
        says="what to cut",
        schema={"type": "string", "minLength": 1, "maxLength": MOST_SENTENCE},
        required=True,
    ),
)
AUDIT = (
    _number("limit", "so many records", 1, 1_000),
    _number("before", "the last ones before this position", 1, 999_999_999),
    _number("after", "the first ones after this position", 0, 999_999_999),
)
