"""Refusals as RFC 9457 problem documents, and the one way every error leaves the control API."""

import msgspec
from starlette.responses import Response

from infer_engine.fleet.generation import Refusal
from infer_engine.listener import Malformed
from infer_engine.protocol import Problem

#: Longest stretch of what a client sent that is repeated to it.
MAX_ECHO = 120


def echo(given: object) -> str:
    """What was given, bounded and in ASCII, to say back in an error."""
    text = ascii(given)
    return text if len(text) <= MAX_ECHO else f"{text[:MAX_ECHO]}…"


def problem_response(refusal: Refusal) -> Response:
    headers: dict[str, str] = {"cache-control": "no-store"}
    if refusal.retry_after_s is not None:
        headers["retry-after"] = str(max(1, round(refusal.retry_after_s)))
    return Response(
        msgspec.json.encode(refusal.problem),
        status_code=refusal.problem.status,
        headers=headers,
        media_type="application/problem+json",
    )


def json_response(document: msgspec.Struct, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(document),
        status_code=status,
        headers={"cache-control": "no-store"},
        media_type="application/json",
    )


def malformed_request() -> Malformed:
    """The answer to what is no HTTP request."""
    problem = Problem(
        status=400, code="malformed_request", title="That is no HTTP/1.1 request, or its head is too large."
    )
    return Malformed(b"application/problem+json", msgspec.json.encode(problem))
