"""Three questions about health, each with its own answer.

``/livez``: does the process answer? ``/readyz``: is there a replica that takes requests?
``/health/progress``: do the replicas move? A server that hangs with work in hand answers the first two with
yes.
"""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from infer_engine.fleet.fleet import Fleet
from infer_engine.protocol import Replica

#: In the last error of a server of others, where nobody answered at all.
_NOBODY = ("ConnectError", "ConnectTimeout", "ReadTimeout", "TimeoutError", "does not answer")
_NO_STORE = {"Cache-Control": "no-store"}


def health_routes(fleet: Fleet, stopping: Callable[[], bool] = lambda: False) -> list[Route]:
    async def live(_request: Request) -> Response:
        return JSONResponse({"status": "ok"}, headers=_NO_STORE)

    async def ready(_request: Request) -> Response:
        if fleet.ready and not stopping():
            return JSONResponse({"status": "ready"}, headers=_NO_STORE)
        return JSONResponse(
            {
                "status": "not ready",
                "reason": "the server is stopping" if stopping() else _why_not_ready(fleet.status().replicas),
            },
            status_code=503,
            headers={**_NO_STORE, "Retry-After": "2"},
        )

    async def progress(_request: Request) -> Response:
        """503 when work is stuck everywhere: restarting what only one replica lost would cost the others'
        requests."""
        replicas = fleet.status().replicas
        states = [each.health for each in replicas if each.health is not None]
        stuck = bool(states) and all(state in ("stalled", "bad") for state in states)
        idle = bool(states) and all(state == "idle" for state in states)
        document = {
            "status": "stalled" if stuck else "idle" if idle else "ok",
            "replicas": [
                {"id": each.id, "state": each.state, "progress": each.health, "step_age_s": each.step_age_s}
                for each in replicas
            ],
        }
        return JSONResponse(document, status_code=503 if stuck else 200, headers=_NO_STORE)

    return [
        Route("/livez", live),
        Route("/health", live),
        Route("/readyz", ready),
        Route("/health/progress", progress),
    ]


def _why_not_ready(replicas: list[Replica]) -> str:
    if not replicas:
        return "there is no replica"
    return ", ".join(f"{each.id}{_state(each)}" for each in replicas)


def _state(replica: Replica) -> str:
    if replica.launcher == "upstream" and replica.state == "starting" and replica.error is not None:
        # It is others who start it, and nobody may: what it is is what its last look found.
        silent = any(word in replica.error for word in _NOBODY)
        return f" is {'not reachable' if silent else 'not ready'}: {replica.error}"
    if replica.state == "starting" and replica.load_progress is not None:
        return f" is starting ({replica.load_progress:.0%} loaded)"
    return f" is {replica.state}"
