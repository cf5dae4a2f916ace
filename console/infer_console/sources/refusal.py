"""What a refusal says, also where it is none of the control API's: the gateway's, a proxy's."""

import httpx2
import msgspec
from infer_engine.protocol import Problem


def problem_of(response: httpx2.Response, body: bytes, url: str) -> Problem:
    """``url`` is what was given to connect to."""
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
        return Problem(
            status=response.status_code, code="http_error", title=title, detail=_what_it_is(response, url)
        )


def _what_it_is(response: httpx2.Response, url: str) -> str:
    """A path that every server of ours has is not there."""
    if response.status_code not in (404, 405, 501):
        return ""
    hint = f"; auto+{url} watches it if it is vLLM, SGLang or llama.cpp" if url.startswith("http") else ""
    return f"{url} does not look like an infer-console server{hint}"


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
