"""A text as the tokens that the server's tokenizer cuts it into."""

from msgspec import Struct

from infer_engine.protocol.words import PROTOCOL_VERSION

#: Characters of a text that is cut for a person to look at.
MOST_SENTENCE = 400


class TokenPiece(Struct, frozen=True, gc=False):
    """``spelled`` are the bytes of the text that the token stands for (base64 in JSON): often a space before
    a word, sometimes a part of a character. None where the server does not tell them."""

    id: int
    spelled: bytes | None = None


class Tokenized(Struct, frozen=True, kw_only=True):
    """The text alone: neither what a chat template puts around it nor a token that every text begins with.
    ``tokenizer`` is the model whose vocabulary it is; not that of a fleet that is simulated."""

    version: int = PROTOCOL_VERSION
    tokenizer: str
    tokens: list[TokenPiece]
