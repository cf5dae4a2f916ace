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
from infer_engine.gateway.answer import Answer, Choices, Piece
from infer_engine.gateway.constraint_check import ConstraintCheck
from infer_engine.gateway.departure import Departure
from infer_engine.gateway.encoding import EncodingDesk
from infer_engine.gateway.errors import ApiError, unknown_model
from infer_engine.gateway.fields import Fields, parse_object
from infer_engine.gateway.identity import read_identity
from infer_engine.gateway.ignored_fields import ignored_header
from infer_engine.gateway.intake import Ask, Intake
from infer_engine.gateway.key_gate import key_of
from infer_engine.gateway.key_use import KeyUse
from infer_engine.gateway.keys import ApiKey
from infer_engine.gateway.logprob_documents import LogprobDocuments
from infer_engine.gateway.receipt import ClientGoneError, Receipt
from infer_engine.gateway.replies import ChatReply, Choice, CompletionReply, usage
from infer_engine.gateway.settings import GatewaySettings
from infer_engine.gateway.sse import DONE, EventStream, SlowReaderError, frame
from infer_engine.gateway.stop_text import StopText
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
    constraints: ConstraintCheck
    key_use: KeyUse


@dataclass(frozen=True, slots=True)
class _Taken:
    """A request that the fleet has, and headers of its answer."""

    ask: Ask
    generations: list[Generation]
    headers: dict[str, str]


class GenerateEndpoint:
    """One endpoint as an ASGI application; ``read`` makes its request of a body."""

    def __init__(self, parts: Parts, read: Callable[[Fields], Ask]) -> None:
        self._parts = parts
        self._read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            arrived_s = self._parts.fleet.now()
            headers = Headers(scope=scope)
            body = await self._parts.receipt.body(headers, receive)
            key = key_of(scope)
            with self._parts.key_use.one_of(key):
                async with Departure(receive) as departure:
                    taken = await self._take(headers, body, key, arrived_s)
                    await self._serve(taken, departure, scope, receive, send)
        except SlowReaderError:
            await _cut(scope, receive)
        except ClientGoneError:
            return

    async def _take(self, headers: Headers, body: bytes, key: ApiKey | None, arrived_s: float) -> _Taken:
        parts = self._parts
        received_s = parts.fleet.now()
        identity = read_identity(headers, key)
        authenticated_s = parts.fleet.now()
        ask, unread = await parts.desk.run(lambda: self._parse(body), len(body))
        if ask.model != parts.model_name:
            raise unknown_model(ask.model, parts.model_name)
        constraint, field = ask.params.sampling.constraint, ask.params.constraint_field
        if constraint is not None and field is not None:
            await parts.constraints.check(constraint, field)
        generations = await parts.intake.take(
            ask, identity, arrived_s=arrived_s, received_s=received_s, authenticated_s=authenticated_s
        )
        return _Taken(ask, generations, ignored_header(unread))

    def _parse(self, body: bytes) -> tuple[Ask, list[str]]:
        fields = parse_object(body)
        ask = self._read(fields)
        return ask, fields.unread()

    async def _serve(
        self,
        taken: _Taken,
        departure: Departure,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        parts, ask, generations = self._parts, taken.ask, taken.generations
        choices = Choices([self._answer(ask, each, at) for at, each in enumerate(generations)])
        try:
            if ask.params.stream:
                stream = EventStream(send, generations[0].id, parts.settings, taken.headers)
                await self._stream(ask, choices, stream, departure)
            else:
                response = await self._whole(ask, choices)
                response.headers.update(taken.headers)
                departure.answered()
                await response(scope, receive, send)
                for answer in choices.answers:
                    answer.generation.log.whole_sent(parts.fleet.now())
        except BaseException as error:
            left = isinstance(error, asyncio.CancelledError | ClientGoneError)
            self._give_up(choices, "client_disconnected" if left else "gateway_failed")
            raise

    def _answer(self, ask: Ask, generation: Generation, choice: int) -> Answer:
        return Answer(
            choice,
            generation,
            lambda: (
                IncrementalDetokenizer(self._parts.tokenizer),
                StopText(ask.params.stop, include=ask.params.include_stop),
            ),
            stop=lambda: self._parts.fleet.cancel(generation.id, reason="stop"),
        )

    def _give_up(self, choices: Choices, code: str) -> None:
        """Whatever ended this, nobody reads on: the blocks go back, in whatever state each choice is."""
        for answer in choices.answers:
            if not answer.generation.finished and not answer.ended:
                self._parts.fleet.cancel(answer.generation.id, reason="cancelled", code=code)

    def _reply(self, ask: Ask, choices: Choices) -> ChatReply | CompletionReply:
        told = ask.params.sampling.logprobs is not None
        documents = LogprobDocuments(self._parts.tokenizer.token_bytes) if told else None
        return ask.reply(choices.answers[0].generation.id, time.time(), documents)

    async def _whole(self, ask: Ask, choices: Choices) -> JSONResponse:
        told = ask.params.sampling.logprobs is not None
        pieces: list[list[Piece]] = [[] for _ in choices.answers]
        while not choices.complete:
            for piece in await choices.pieces(TURN_S):
                if piece.anew:
                    pieces[piece.choice].clear()
                pieces[piece.choice].append(piece)
        document = self._reply(ask, choices).whole(
            [_joined(each, told=told) for each in pieces], self._used(choices)
        )
        return JSONResponse(document, headers={"x-request-id": choices.answers[0].generation.id})

    def _used(self, choices: Choices) -> dict[str, Any]:
        return usage(len(choices.answers[0].generation.spec.prompt), choices.tokens)

    async def _stream(self, ask: Ask, choices: Choices, stream: EventStream, departure: Departure) -> None:
        reply = self._reply(ask, choices)
        opening = [frame(document) for document in reply.opening(len(choices.answers))]
        unsent = {answer.generation.id: answer.generation for answer in choices.answers}
        while not choices.complete:
            try:
                pieces = await choices.pieces(stream.patience_s)
            except ApiError as error:
                if not stream.started:
                    raise
                # No [DONE] after an error: an answer that was cut must not look complete.
                self._give_up(choices, "gateway_failed")
                departure.answered()
                await stream.end(frame(error.body))
                return
            if not pieces:
                await stream.ping()
                continue
            used = self._used(choices) if ask.params.continuous_usage else None
            frames = [each for piece in pieces for each in _frames(reply, piece, ask, used)]
            if choices.complete:
                if ask.params.include_usage:
                    frames.append(frame(reply.usage(self._used(choices))))
                departure.answered()
                await stream.end(*opening, *frames, DONE)
            elif frames:
                await stream.write(*opening, *frames)
                opening = []
            if unsent and frames:
                self._first_bytes(unsent, [choices.answers[piece.choice].generation for piece in pieces])

    def _first_bytes(self, unsent: dict[str, Generation], sent: list[Generation]) -> None:
        for generation in sent:
            if unsent.pop(generation.id, None) is not None:
                self._parts.fleet.timelines.first_byte(generation)


def _joined(pieces: list[Piece], *, told: bool) -> Choice:
    """A whole choice; its last piece says how it ended."""
    finish = pieces[-1].finish
    assert finish is not None
    tokens = [token for piece in pieces for token in piece.told]
    return Choice("".join(piece.text for piece in pieces), finish, tokens if told else None)


def _frames(
    reply: ChatReply | CompletionReply, piece: Piece, ask: Ask, used: dict[str, Any] | None
) -> list[bytes]:
    """``used`` is told on each of them, where that was asked for."""
    documents: list[dict[str, Any]] = []
    if piece.text or piece.told:
        told = piece.told if ask.params.sampling.logprobs is not None else None
        documents.append(reply.delta(piece.text, piece.choice, told))
    if piece.finish is not None:
        documents.append(reply.closing(piece.finish, piece.choice))
    return [frame(each if used is None else {**each, "usage": used}) for each in documents]


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
