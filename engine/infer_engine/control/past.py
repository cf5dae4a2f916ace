"""What was, for those who look afterwards: series of the last hour, and what the flight recorder has."""

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from infer_engine.control.context import Context
from infer_engine.control.history import SPAN_S
from infer_engine.control.problems import echo, json_response
from infer_engine.control.sse import EventStream
from infer_engine.fleet.generation import Refusal, refuse
from infer_engine.fleet.unknown import unknown_replica

DEFAULT_SECONDS = 1_800.0
DEFAULT_STEP_S = 20.0
LONGEST_STEP_S = 600.0
#: Replicas whose series come when none are named; of more, each has to be named.
MOST_UNASKED = 64
#: Unix seconds beyond which nothing is a moment.
LAST_AT = 1e11
#: What a recording may be asked for.
PARTS = ("all", "timelines")
#: Recordings that are sent at once.
MOST_READERS = 4


class Past:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._readers = 0

    async def history(self, request: Request) -> Response:
        keeper = self._context.history
        if keeper is None:
            raise refuse(404, "no_history", "This server keeps no history.")
        seconds = query_number(request, "seconds", 1.0, SPAN_S) or DEFAULT_SECONDS
        step_s = query_number(request, "step", 1.0, LONGEST_STEP_S) or DEFAULT_STEP_S
        fleet = self._context.fleet
        known = fleet.replica_ids()
        asked = request.query_params.get("replicas")
        if asked is None:
            wanted = known if len(known) <= MOST_UNASKED else []
        else:
            wanted = list(dict.fromkeys(each for each in asked.split(",") if each))
            for each in wanted:
                if each not in known:
                    raise unknown_replica(each, field="replicas")
        return json_response(keeper.document(seconds, step_s, wanted, simulated=fleet.is_simulated))

    async def recorder(self, request: Request) -> EventStream:
        recorder = self._context.recorder
        if recorder is None:
            raise refuse(404, "no_recorder", "This server does not record.")
        from_at = query_number(request, "from", 0.0, LAST_AT)
        to_at = query_number(request, "to", 0.0, LAST_AT)
        if from_at is not None and to_at is not None and to_at < from_at:
            raise refuse(
                400,
                "invalid_field",
                "to does not fit.",
                f"must not be before from ({from_at:g}), got {to_at:g}.",
                field="to",
            )
        parts = request.query_params.get("parts", "all")
        if parts not in PARTS:
            raise refuse(
                400,
                "invalid_field",
                "parts does not fit.",
                f"must be one of {', '.join(PARTS)}, got {echo(parts)}.",
                field="parts",
            )
        if self._readers >= MOST_READERS:
            raise Refusal(
                refuse(
                    503,
                    "too_many_readers",
                    "Too many recordings are sent.",
                    numbers={"allowed": MOST_READERS},
                ).problem,
                retry_after_s=5.0,
            )
        self._readers += 1
        frames = recorder.recording(from_at, to_at, messages=parts == "all")

        async def sent() -> AsyncGenerator[bytes]:
            for frame in frames:
                yield frame

        return EventStream(sent(), self._closed, media_type=b"application/zstd")

    def _closed(self) -> None:
        self._readers -= 1


def query_number(request: Request, name: str, lowest: float, highest: float) -> float | None:
    """None when it was not given."""
    given = request.query_params.get(name)
    if given is None:
        return None
    try:
        number = float(given)
    except ValueError:
        number = float("nan")
    if not lowest <= number <= highest:
        raise refuse(
            400,
            "invalid_field",
            f"{name} does not fit.",
            f"must be a number from {lowest:g} to {highest:g}, got {echo(given)}.",
            field=name,
        )
    return number
