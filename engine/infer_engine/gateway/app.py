"""What clients call: the OpenAI API, metrics and health, as one ASGI application.

Beside OpenAI's fields: vLLM's for sampling and structured output (``docs/api.md`` lists all), and the tier as
the field ``tier`` or the header ``x-infer-tier`` (interactive, batch). The header ``x-infer-tenant`` names
the tenant. ``x-request-id`` (or the field ``user``) is kept as a label; the id that counts is made here and
comes back in the ``x-request-id`` of the answer.
"""

import json
import time
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from infer_engine.fleet.fleet import Fleet
from infer_engine.gateway.chat_request import read_chat_request
from infer_engine.gateway.completion_request import read_completion_request
from infer_engine.gateway.constraint_check import ConstraintCheck
from infer_engine.gateway.encoding import EncodingDesk
from infer_engine.gateway.endpoint import GenerateEndpoint, Parts
from infer_engine.gateway.errors import ApiError, shown, unknown_model
from infer_engine.gateway.health import health_routes
from infer_engine.gateway.intake import Intake
from infer_engine.gateway.key_gate import KeyGate
from infer_engine.gateway.key_use import KeyUse
from infer_engine.gateway.keys import Keyring
from infer_engine.gateway.load import GatewayLoad
from infer_engine.gateway.params import Bounds
from infer_engine.gateway.receipt import Receipt
from infer_engine.gateway.settings import GatewaySettings
from infer_engine.listener import Malformed
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import GatewayStatus
from infer_engine.telemetry.prometheus import Metrics


def build_gateway(
    fleet: Fleet,
    tokenizer: Tokenizer,
    *,
    model_name: str,
    context_length: int,
    settings: GatewaySettings | None = None,
    load: GatewayLoad | None = None,
    keyring: Keyring | None = None,
    protect_metrics: bool = False,
    collectors: Sequence[Collector] = (),
    stopping: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """The application to serve. It holds nothing that needs closing: what it starts ends with each request.

    ``load`` is measured by whoever listens; without it the metrics page does not have those numbers. With a
    ``keyring`` nobody passes without one of its keys, except to health and (unless ``protect_metrics``) to
    the metrics page, which shows what ``collectors`` have, too. ``stopping``: the server was asked to end.
    """
    settings = settings or GatewaySettings()
    metrics = Metrics(
        fleet,
        model_name,
        gateway=(lambda: load.status(None)) if load else GatewayStatus,
        others=collectors,
    )
    desk = EncodingDesk(settings)
    if load is not None:
        load.tokenizer = lambda: desk.queue
    parts = Parts(
        fleet=fleet,
        tokenizer=tokenizer,
        model_name=model_name,
        settings=settings,
        receipt=Receipt(settings),
        desk=desk,
        intake=Intake(fleet, tokenizer, context_length, desk, settings),
        constraints=ConstraintCheck(tokenizer, settings),
        key_use=KeyUse(),
    )
    bounds = Bounds(context_length=context_length, vocabulary_size=tokenizer.vocab_size, settings=settings)
    chat = GenerateEndpoint(parts, lambda fields: read_chat_request(fields, bounds))
    completion = GenerateEndpoint(parts, lambda fields: read_completion_request(fields, bounds))
    health, page = health_routes(fleet, stopping), Route("/metrics", _metrics_page(metrics))
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/completions", completion, methods=["POST"]),
            *_model_routes(model_name, context_length),
            *health,
            page,
        ],
        exception_handlers={ApiError: _api_error, HTTPException: _http_error, Exception: _our_fault},
    )
    # A redirect would be built from the client's own Host header.
    app.router.redirect_slashes = False
    return app if keyring is None else KeyGate(app, health if protect_metrics else [*health, page], keyring)


async def too_many_connections(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer to whoever is beyond the limits on connections."""
    refusal = ApiError(
        503, "too many connections at this moment", code="too_many_connections", retry_after_s=1.0, close=True
    )
    await refusal.response()(scope, receive, send)


def malformed_request() -> Malformed:
    """The answer to what is no HTTP request."""
    error = ApiError(
        400,
        "that is no HTTP/1.1 request, or its head is too large",
        code="malformed_request",
        close=True,
    )
    return Malformed(b"application/json", json.dumps(error.body).encode())


def _model_routes(model_name: str, context_length: int) -> list[Route]:
    model = {
        "id": model_name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "infer-console",
        "max_model_len": context_length,
    }

    async def models(_request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model]})

    async def one_model(request: Request) -> Response:
        asked: str = request.path_params["model"]
        if asked != model_name:
            raise unknown_model(asked, model_name)
        return JSONResponse(model)

    return [Route("/v1/models", models), Route("/v1/models/{model:path}", one_model)]


def _metrics_page(metrics: Metrics) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        body, content_type = await metrics.page(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    return page


async def _api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _http_error(request: Request, error: Exception) -> Response:
    """What the router refuses: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    message = {
        404: f"there is no {shown(request.scope['path'])} here",
        405: f"{request.method} is not allowed on {shown(request.scope['path'])}",
    }.get(error.status_code, error.detail)
    response = ApiError(error.status_code, message, code="not_found" if error.status_code == 404 else None)
    answer = response.response()
    answer.headers.update(error.headers or {})
    return answer


async def _our_fault(_request: Request, _error: Exception) -> Response:
    """The server logs it; the client gets no details of it."""
    return ApiError(500, "the server failed to handle this request", code="internal_error").response()
