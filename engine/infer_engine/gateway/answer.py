"""The text of one generation as it grows, and how it ends."""

from collections.abc import Callable
from dataclasses import dataclass

from infer_engine.fleet.generation import Generation
from infer_engine.gateway.errors import ended_badly
from infer_engine.gateway.replies import ClientFinish
from infer_engine.gateway.stop_text import StopText
from infer_engine.model.tokenizer import IncrementalDetokenizer


@dataclass(frozen=True, slots=True)
class Piece:
    """New text, and how it ended if it did. ``text`` may be empty: half a character, or half a stop
    string."""

    text: str
    finish: ClientFinish | None = None


class Answer:
    """Reads a generation's tokens once each. ``stop`` is called when a stop string ends the answer before the
    model does."""

    def __init__(
        self,
        generation: Generation,
        detokenizer: IncrementalDetokenizer,
        stops: tuple[str, ...],
        stop: Callable[[], object],
    ) -> None:
        self._generation = generation
        self._detokenizer = detokenizer
        self._stop_text = StopText(stops)
        self._stop = stop
        #: Tokens read: what the client is told it got, and where reading goes on.
        self.tokens = 0

    @property
    def ended(self) -> bool:
        """A stop string was found; the generation may not know yet."""
        return self._stop_text.matched is not None

    async def piece(self, timeout_s: float) -> Piece | None:
        """What came since the last call, several tokens at once when the client is slower than the model;
        None when nothing came in time. Raise ApiError when the generation ended as an error or was
        cancelled."""
        generation = self._generation
        if not await generation.beyond(self.tokens, timeout_s):
            return None
        text = self._read()
        if self.ended:
            self._stop()
            return Piece(text, "stop")
        if not generation.finished:
            return Piece(text)
        if generation.finish_reason not in ("stop", "length"):
            raise ended_badly(generation)
        text += self._stop_text.push(self._detokenizer.flush())
        return Piece(text + self._stop_text.flush(), generation.finish_reason)

    def _read(self) -> str:
        texts: list[str] = []
        emitted = self._generation.emitted
        while self.tokens < len(emitted) and not self.ended:
            texts.append(self._stop_text.push(self._detokenizer.push(emitted[self.tokens])))
            self.tokens += 1
        return "".join(texts)
