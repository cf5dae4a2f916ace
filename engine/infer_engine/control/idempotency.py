"""Commands that were sent twice are done once: what each answered is remembered by its key."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from infer_engine.control.problems import echo
from infer_engine.fleet.generation import refuse

KEY = re.compile(r"[\x21-\x7e]{1,255}")
KEPT_S = 86_400.0
MAX_KEPT = 10_000
#: Statuses after which nothing was done and the same command may be tried again.
NOT_KEPT = frozenset({408, 429, 499})


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it was given: enough to give it again."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...]
    media_type: str


@dataclass(slots=True)
class _Entry:
    fingerprint: bytes
    at_s: float
    #: None while the command is under way.
    answer: Answer | None = None


def fingerprint(method: str, path: str, query: str, body: bytes) -> bytes:
    """What makes two requests the same command."""
    parts = (method.encode(), path.encode(), query.encode(), body)
    return hashlib.sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).digest()


def check_key(given: str | None) -> str | None:
    """Refusal (400) unless it is a key, or none was given."""
    if given is not None and not KEY.fullmatch(given):
        raise refuse(
            400,
            "invalid_field",
            "Idempotency-Key does not fit.",
            f"1 to 255 visible ASCII characters are allowed, got {echo(given)}.",
            field="idempotency-key",
        )
    return given


@dataclass(slots=True)
class Idempotency:
    """``clock`` is monotonic. Keys are each principal's own: nobody learns of another's."""

    clock: Callable[[], float]
    max_kept: int = MAX_KEPT
    _entries: dict[tuple[str, str], _Entry] = field(default_factory=dict[tuple[str, str], _Entry])

    def begin(self, principal: str, key: str, print_: bytes) -> Answer | None:
        """What the command answered when it was sent before; None for a new one, which ``end`` has to follow.
        Refusal: 422 for another command under the same key, 409 while it is under way."""
        self._drop_old()
        entry = self._entries.get((principal, key))
        if entry is None:
            self._entries[(principal, key)] = _Entry(print_, self.clock())
            return None
        if entry.fingerprint != print_:
            raise refuse(
                422,
                "idempotency_key_reused",
                "This Idempotency-Key was used for another command.",
                field="idempotency-key",
            )
        if entry.answer is None:
            raise refuse(
                409,
                "in_progress",
                "This command is under way.",
                "Send it again, with the same key, for its answer.",
            )
        return entry.answer

    def end(self, principal: str, key: str, answer: Answer | None) -> None:
        """Remember what was answered; None, and what may be tried again, is forgotten."""
        entry = self._entries.get((principal, key))
        if entry is None:
            return
        if answer is None or answer.status >= 500 or answer.status in NOT_KEPT:
            del self._entries[(principal, key)]
        else:
            entry.answer = answer

    def _drop_old(self) -> None:
        """In the order in which they came; those under way are bounded by the server's connections."""
        now_s = self.clock()
        surplus = len(self._entries) - self.max_kept + 1
        old: list[tuple[str, str]] = []
        for name, entry in self._entries.items():
            if surplus <= len(old) and now_s - entry.at_s < KEPT_S:
                break
            if entry.answer is not None:
                old.append(name)
        for name in old:
            del self._entries[name]
