"""``POST /v1/chat/completions`` and ``POST /v1/completions``: from a body to an answer, or to a clean end."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation
from infer_engine.gateway.answer import Answer
from infer_engine.gateway.departure import Departure
from infer_engine.gateway.encoding import EncodingDesk
from infer_engine.gateway.errors import ApiError, unknown_model
from infer_engine.gateway.fields import Fields, parse_object
from infer_engine.gateway.identity import read_identity
from infer_engine.gateway.intake import Ask, Intake
from infer_engine.gateway.receipt import ClientGoneError, Receipt
from infer_engine.gateway.replies import usage
from infer_engine.gateway.settings import GatewaySettings
from infer_engine.gateway.sse import DONE, EventStream, SlowReaderError, frame
from infer_engine.model.tokenizer import IncrementalDetokenizer, Tokenizer

log = logging.getLogger(__name__)

#: How long a connection that was cut may take to be gone.
CUT_S = 1.0
#: A whole answer is waited for in turns of this length; its end is told by the generation, not by time.
TURN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the endpoints share."""

    fleet: Fleet
    tokenizer: Tokenizer
    model_name: str
    settings: GatewaySettings
    receipt: Receipt
    desk: EncodingDesk
    intake: Intake


class GenerateEndpoint:
    """One endpoint as an ASGI application; ``read`` makes its request of a body."""

    def __init__(self, parts: Parts, read: Callable[[Fields], Ask]) -> None:
        self._parts = parts
        self._read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = Headers(scope=scope)
            body = await self._parts.receipt.body(headers, receive)
            async with Departure(receive) as departure:
                ask, generation = await self._take(headers, body)
                await self._serve(ask, generation, departure, scope, receive, send)
        except SlowReaderError:
            await _cut(scope, receive)
        except ClientGoneError:
            return

    async def _take(self, headers: Headers, body: bytes) -> tuple[Ask, Generation]:
        parts = self._parts
        identity = read_identity(headers)
        ask = await parts.desk.run(lambda: self._read(parse_object(body)), len(body))
        if ask.model != parts.model_name:
            raise unknown_model(ask.model, parts.model_name)
        return ask, await parts.intake.take(ask, identity)

    async def _serve(
        self,
        ask: Ask,
        generation: Generation,
        departure: Departure,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        parts = self._parts
        answer = Answer(
            generation,
            IncrementalDetokenizer(parts.tokenizer),
            ask.params.stop,
            stop=lambda: parts.fleet.cancel(generation.id, reason="stop"),
        )
        try:
            if ask.params.stream:
                stream = EventStream(send, generation.id, parts.settings)
                await self._stream(ask, generation, answer, stream, departure)
            else:
                response = await self._whole(ask, generation, answer)
                departure.answered()
                await response(scope, receive, send)
        except BaseException as error:
            # Whatever ended this, nobody reads on: the blocks go back, in whatever state the request is.
            if not generation.finished and not answer.ended:
                left = isinstance(error, asyncio.CancelledError | ClientGoneError)
                code = "client_disconnected" if left else "gateway_failed"
                parts.fleet.cancel(generation.id, reason="cancelled", code=code)
            raise

    async def _whole(self, ask: Ask, generation: Generation, answer: Answer) -> JSONResponse:
        texts: list[str] = []
        while True:
            piece = await answer.piece(TURN_S)
            if piece is None:
                continue
            texts.append(piece.text)
            if piece.finish is not None:
                reply = ask.reply(generation.id, time.time())
                document = reply.whole(
                    "".join(texts), piece.finish, usage(len(generation.spec.prompt), answer.tokens)
                )
                return JSONResponse(document, headers={"x-request-id": generation.id})

    async def _stream(
        self, ask: Ask, generation: Generation, answer: Answer, stream: EventStream, departure: Departure
    ) -> None:
        reply = ask.reply(generation.id, time.time())
        opening = [frame(document) for document in reply.opening()]
        while True:
            try:
                piece = await answer.piece(stream.patience_s)
            except ApiError as error:
                if not stream.started:
                    raise
                # No [DONE] after an error: an answer that was cut must not look complete.
                departure.answered()
                await stream.end(frame(error.body))
                return
            if piece is None:
                await stream.ping()
                continue
            frames = [frame(reply.delta(piece.text))] if piece.text else []
            if piece.finish is None:
                if frames:
                    await stream.write(*opening, *frames)
                    opening = []
                continue
            frames.append(frame(reply.closing(piece.finish)))
            if ask.params.include_usage:
                frames.append(frame(reply.usage(usage(len(generation.spec.prompt), answer.tokens))))
            departure.answered()
            await stream.end(*opening, *frames, DONE)
            return


async def _cut(scope: Scope, receive: Receive) -> None:
    """End the connection of a client that takes no bytes: nothing can be told to it any more."""
    state: dict[str, Any] = scope.get("state", {})
    abort: Callable[[], None] | None = state.get("abort")
    if abort is None:
        return
    log.info("cutting a stream whose client took no bytes in time")
    abort()
    async with asyncio.timeout(CUT_S):
        while (await receive())["type"] != "http.disconnect":
            pass
