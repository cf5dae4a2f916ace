"""The text of one generation as it grows, and how it ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from infer_engine.fleet.generation import Generation, any_beyond
from infer_engine.gateway.errors import ended_badly
from infer_engine.gateway.replies import ClientFinish
from infer_engine.gateway.stop_text import StopText
from infer_engine.gateway.token_trail import TokenTrail, ToldToken
from infer_engine.model.tokenizer import IncrementalDetokenizer


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of one choice, and how it ended if it did. ``text`` may be empty: half a character, or half a
    stop string. ``told`` are the tokens of the text let out so far that no earlier piece told, where logprobs
    were asked for."""

    choice: int
    text: str
    finish: ClientFinish | None = None
    told: Sequence[ToldToken] = ()
    #: It is the first again: nothing that came before it holds.
    anew: bool = False


#: What turns tokens into text, as at the beginning.
Fresh = Callable[[], tuple[IncrementalDetokenizer, StopText]]


class Answer:
    """Reads a generation's tokens once each. ``stop`` is called when a stop string ends the answer before the
    model does; the text of the first ``min_tokens`` tokens is not searched for one."""

    def __init__(
        self,
        choice: int,
        generation: Generation,
        fresh: Fresh,
        stop: Callable[[], object],
    ) -> None:
        self.generation = generation
        self._choice = choice
        self._fresh = fresh
        self._min_tokens = generation.spec.sampling.min_tokens
        self._stop = stop
        #: The last piece was read.
        self.complete = False
        self._begin()

    def _begin(self) -> None:
        self._restarts = self.generation.restarts
        self._detokenizer, self._stop_text = self._fresh()
        self._trail = TokenTrail()
        self._released_chars = 0
        #: Tokens read: what the client is told it got, and where reading goes on.
        self.tokens = 0

    @property
    def ended(self) -> bool:
        """A stop string was found; the generation may not know yet."""
        return self._stop_text.matched is not None

    def piece(self) -> Piece:
        """What came since the last call, several tokens at once when the client is slower than the model.
        Raise ApiError when the generation ended as an error or was cancelled."""
        if self.generation.restarts == self._restarts:
            return self._piece()
        self._begin()
        return replace(self._piece(), anew=True)

    def _piece(self) -> Piece:
        generation = self.generation
        text = self._read()
        if self.ended:
            self._stop()
            return self._last(text, "stop", self._released_chars + len(text))
        if not generation.finished:
            self._released_chars += len(text)
            return Piece(self._choice, text, None, self._trail.release(self._released_chars))
        if generation.finish_reason not in ("stop", "length"):
            raise ended_badly(generation)
        text += self._stop_text.push(self._detokenizer.flush())
        if self.ended:
            return self._last(text, "stop", self._released_chars + len(text))
        return self._last(text + self._stop_text.flush(), generation.finish_reason, None)

    def _last(self, text: str, finish: ClientFinish, cut: int | None) -> Piece:
        self.complete = True
        self.generation.logprobs.clear()
        return Piece(self._choice, text, finish, self._trail.finish(cut))

    def _read(self) -> str:
        texts: list[str] = []
        emitted = self.generation.emitted
        while self.tokens < len(emitted) and not self.ended:
            token = emitted[self.tokens]
            text = self._detokenizer.push(token)
            self._trail.push(token, text, self.generation.logprobs.pop(self.tokens, None))
            texts.append(text if self.tokens < self._min_tokens else self._stop_text.push(text))
            self.tokens += 1
        return "".join(texts)


class Choices:
    """The answers of one request, read together."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = answers

    @property
    def complete(self) -> bool:
        return all(answer.complete for answer in self.answers)

    @property
    def tokens(self) -> int:
        """Read so far, of all of them."""
        return sum(answer.tokens for answer in self.answers)

    async def pieces(self, timeout_s: float) -> list[Piece]:
        """What came since the last call, one piece for each choice that has something; nothing when nothing
        came in time. Raise ApiError when one of them ended badly."""
        open_ = [answer for answer in self.answers if not answer.complete]
        if not await any_beyond([(answer.generation, answer.tokens) for answer in open_], timeout_s):
            return []
        return [answer.piece() for answer in open_ if answer.generation.is_beyond(answer.tokens)]
