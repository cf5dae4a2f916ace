"""Says of every answer that no model made it."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = b"x-infer-simulated"


class MarkSimulated:
    """ASGI middleware: the header ``x-infer-simulated`` names what is simulated, such as
    ``llama-3.1-70b@4xh100``."""

    def __init__(self, app: ASGIApp, deployment: str) -> None:
        self._app = app
        # Headers are Latin-1, but not every client thinks so.
        self._header = (HEADER, deployment.replace("×", "x").encode("ascii", "replace"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), self._header]}
            await send(message)

        await self._app(scope, receive, marked if scope["type"] == "http" else send)
