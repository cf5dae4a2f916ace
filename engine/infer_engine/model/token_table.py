"""What a tokenizer is made of, as a model's files state it."""

from dataclasses import dataclass, field

import tokenizers

#: Tokens that end a turn or a document, whatever the files name as their end-of-sequence tokens.
END_TOKENS = frozenset({"<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>"})
#: What SentencePiece vocabularies write a space as.
_SPACE_MARK = "▁"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTable:
    #: The bytes that each id spells; nothing for ids that are not used.
    token_bytes: list[bytes]
    #: Control tokens by their text: only templates, and callers that say so, may write them. None has but one
    #: character: text could not be kept apart from those.
    special_ids: dict[str, int]
    #: Words that are one token wherever they stand, in users' text too.
    word_ids: dict[str, int] = field(default_factory=dict[str, int])
    #: Ids that end a generation.
    stop_ids: frozenset[int]
    #: Encodes text; knows no special tokens at all.
    encoder: tokenizers.Tokenizer
    #: The same for text that follows a special token or a word. Some tokenizers put a space before the
    #: beginning of a text only.
    later_encoder: tokenizers.Tokenizer
    #: What every text that is no chat begins with, such as the beginning-of-sequence token.
    prefix_ids: tuple[int, ...] = ()
    #: The encoder puts a space before a text, which decoding takes away.
    adds_space: bool = False
    chat_template: str = ""
    #: Texts that templates ask for by name: ``bos_token``, ``eos_token``.
    named_tokens: dict[str, str] = field(default_factory=dict[str, str])


def spelled_by_piece(token: str) -> bytes:
    """The bytes of a token of a SentencePiece vocabulary: ``<0xNN>`` is one byte."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes([int(token[3:5], 16)])
        except ValueError:
            pass  # a word that looks like one
    return token.replace(_SPACE_MARK, " ").encode(errors="replace")
