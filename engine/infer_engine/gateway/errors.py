"""What goes wrong for a client, in OpenAI's error shape.

``{"error": {"message", "type", "param", "code"}}``: clients of the OpenAI API turn this into exceptions, so
the status, ``param`` (which field) and ``code`` (stable, for programs) matter as much as the message.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from infer_engine.fleet.generation import Generation, Refusal

#: Says why a request was dropped, for proxies that do not read bodies.
DROPPED = "x-request-dropped-reason"
#: Statuses of generations that ended in an error, by code. What is not listed is the server's fault: 500.
_STATUS_BY_CODE = {
    "never_fits": 400,
    # Asking again would end the same way: it outgrew an otherwise empty pool.
    "kv_exhausted": 400,
    "constraint_failed": 400,
    "queue_full": 429,
    "admission_closed": 503,
    "no_ready_replica": 503,
    "draining": 503,
    "cancelled_by_operator": 503,
    "replica_draining": 503,
    "replica_lost": 503,
    "constraint_cut": 503,
    "shutting_down": 503,
    # By a 4xx that is about the request, which would be refused again.
    "upstream_refused": 400,
    "upstream_not_understood": 502,
    "upstream_failed": 502,
    # Who set the deadline gave up on the answer: asking again by itself would be of no use.
    "deadline_exceeded": 504,
}
#: What refusals of what an answer must match name.
CONSTRAINT_FIELDS = ("response_format", "structured_outputs.choice", "structured_outputs.regex")
#: A person decided against this request: clients must not send it again by themselves.
_NOT_AGAIN = {"cancelled_by_operator"}


class ApiError(Exception):
    """An answer that is an error. ``retry`` tells official clients whether to try again by themselves;
    ``close`` ends the connection too (its request was not read to the end)."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
        retry: bool | None = None,
        close: bool = False,
        request_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s
        self.retry = retry
        self.close = close
        self.request_id = request_id
        self.headers = headers or {}

    @property
    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": _type_of(self.status),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        headers = dict(self.headers)
        if self.status in (429, 503) and self.code is not None:
            headers[DROPPED] = self.code
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after_s)))
        if self.retry is not None:
            headers["x-should-retry"] = "true" if self.retry else "false"
        if self.close:
            headers["Connection"] = "close"
        if self.request_id is not None:
            headers["x-request-id"] = self.request_id
        return JSONResponse(self.body, status_code=self.status, headers=headers)


def invalid(param: str | None, message: str, *, code: str = "invalid_value") -> ApiError:
    """A 400 about one field of the request."""
    return ApiError(400, message, param=param, code=code)


def unknown_model(asked: str, served: str) -> ApiError:
    return ApiError(
        404,
        f"the model {shown(asked)} does not exist; this server has {served}",
        param="model",
        code="model_not_found",
    )


def refused(refusal: Refusal, prompt_field: str, constraint_field: str | None = None) -> ApiError:
    """The fleet did not take the request; both numbers of a refusal for size are in the message. The prompt
    and the constraint are called by the names of the fields they came in."""
    problem = refusal.problem
    message, param = problem.detail or problem.title, problem.field
    if param == "prompt":
        param = prompt_field
    elif constraint_field is not None and param in CONSTRAINT_FIELDS:
        param = constraint_field
        message = message.replace(problem.field or "", param, 1)
    missing = {name: value for name, value in problem.numbers.items() if not _mentions(message, value)}
    if missing:
        message += " (" + ", ".join(f"{name} {_number(value)}" for name, value in missing.items()) + ")"
    retry_after_s = refusal.retry_after_s
    if retry_after_s is None and problem.status in (429, 503):
        retry_after_s = 1.0
    return ApiError(
        problem.status,
        message,
        param=param,
        code=problem.code,
        retry_after_s=retry_after_s,
    )


def ended_badly(generation: Generation) -> ApiError:
    """The error of a generation that ended as ``error`` or ``cancelled``."""
    cancelled = generation.finish_reason == "cancelled"
    code = generation.error_code or ("cancelled" if cancelled else "server_error")
    status = _STATUS_BY_CODE.get(code, 503 if cancelled else 500)
    again = status in (429, 503) and code not in _NOT_AGAIN
    return ApiError(
        status,
        generation.error or f"the request ended before it was complete ({code})",
        code=code,
        retry_after_s=1.0 if again else None,
        retry=None if again else False,
        request_id=generation.id,
    )


def shown(value: object) -> str:
    """What the client gave, short and in pure ASCII, for an error message."""
    try:
        text = json.dumps(value)
    except RecursionError:
        return "something deeply nested"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _type_of(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def _mentions(message: str, value: float | None) -> bool:
    return _number(value) in message or (value is not None and f"{value:g}" in message)
