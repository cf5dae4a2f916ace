"""What a refusal says, also where it is none of the control API's: the gateway's, a proxy's."""

import httpx2
import msgspec
from infer_engine.protocol import Problem


def problem_of(response: httpx2.Response, body: bytes) -> Problem:
    try:
        return msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        if response.status_code == 404 and _is_gateway_error(body):
            return Problem(
                status=404,
                code="is_gateway",
                title="That is the gateway, where clients send requests",
                detail="connect to the engine server's control socket, like --connect unix:///path",
            )
        title = f"HTTP {response.status_code} {response.reason_phrase}".strip()
        return Problem(status=response.status_code, code="http_error", title=title)


class _GatewayError(msgspec.Struct):
    """An error as the OpenAI API has it."""

    message: str
    type: str
    code: str | None


class _GatewayAnswer(msgspec.Struct):
    error: _GatewayError


def _is_gateway_error(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=_GatewayAnswer)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True
