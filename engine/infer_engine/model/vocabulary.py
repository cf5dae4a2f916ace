"""What constrained output has to know of a vocabulary."""

from typing import Protocol


class Vocabulary(Protocol):
    """A ``Tokenizer`` is one."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def token_bytes(self) -> list[bytes]:
        """The bytes of each token, by id."""
        ...

    @property
    def special_ids(self) -> dict[str, int]: ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a generation."""
        ...

    def encode(self, text: str) -> list[int]:
        """Special tokens spelled out in ``text`` stay text."""
        ...
