"""The chain of the audit: each record carries its own hash and that of the record before it, so that none can
be changed, taken out or put in unseen. Pure: records in, records and verdicts out."""

import hashlib
from typing import Any

import msgspec

#: What stands as the hash before the first record.
GENESIS = "0" * 64

Record = dict[str, Any]


class ChainError(Exception):
    """The chain does not hold; ``str()`` says where and why."""


def canonical(record: Record) -> bytes:
    """One line of JSON without its end: keys sorted, no spaces, UTF-8."""
    return msgspec.json.encode(record, order="sorted")


def digest(record: Record) -> str:
    """SHA-256 over all of the record but its own hash."""
    return hashlib.sha256(
        canonical({name: value for name, value in record.items() if name != "sha256"})
    ).hexdigest()


def seal(record: Record, number: int, previous: str) -> Record:
    """``record`` as the chain's link of that number, after the one whose hash is ``previous``."""
    linked = {**record, "number": number, "prev_sha256": previous}
    return {**linked, "sha256": digest(linked)}


class Chain:
    """Walks a chain from its beginning, or from wherever its records begin. ``number`` and ``head`` are those
    of the last record that held."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.number = 0
        self.head = GENESIS

    def follow(self, record: Record) -> None:
        """ChainError when ``record`` is not the one after those before it, as it was written."""
        number, previous, own = (record.get(name) for name in ("number", "prev_sha256", "sha256"))
        after = f"after record {self.number}" if self.first is not None else "at the beginning"
        if not isinstance(number, int) or not isinstance(previous, str) or not isinstance(own, str):
            raise ChainError(f"{after}: a line that is no record")
        try:
            computed = digest(record)
        except (TypeError, ValueError, RecursionError):  # what JSON does not have was never written by us
            computed = ""
        if own != computed:
            raise ChainError(f"record {number}: it is not as it was written (its hash does not fit)")
        if self.first is None:
            if number == 1 and previous != GENESIS:
                raise ChainError("record 1: something stood before it")
            self.first = number
        elif number != self.number + 1:
            raise ChainError(f"{after}: record {self.number + 1} is missing, {number} follows")
        elif previous != self.head:
            raise ChainError(f"record {number}: it was not written after the one before it")
        self.number, self.head = number, own


def parse(line: bytes) -> Record | None:
    """The record in a line; None when there is none in it."""
    try:
        found: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
