"""Text to token ids and back, from the model file's own vocabulary and merges. No torch.

A user can never produce a special token: the byte-pair encoder does not know them at all. They are found by
this module, in text that the caller declares to be its own (``allow_special``) and in what the chat template
itself wrote; see ``chat_template.py`` for how that and users' text are told apart.
"""

import codecs
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import tokenizers
from tokenizers import models, pre_tokenizers

from infer_engine.model.byte_alphabet import bytes_of_token
from infer_engine.model.chat_template import ChatTemplate, ChatTemplateError
from infer_engine.model.errors import ModelUnsupported
from infer_engine.model.gguf_file import GgufFile, read_gguf

#: GGUF token types.
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
#: Tokens that end a turn or a document, whatever the file names as its one end-of-sequence token.
_END_TOKENS = frozenset({"<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>"})


class Tokenizer:
    """Immutable and safe to use from several threads; ``encode`` releases the GIL while it works."""

    def __init__(self, gguf: GgufFile) -> None:
        """Takes well under a second for 50,000 tokens. Raises ModelUnsupported."""
        _check_kind(gguf)
        tokens = gguf.strings("tokenizer.ggml.tokens")
        types = gguf.integers("tokenizer.ggml.token_type")
        if not tokens or len(types) != len(tokens):
            raise ModelUnsupported(f"{gguf.path.name}: {len(tokens)} tokens but {len(types)} token types")
        ids = {token: id for id, token in enumerate(tokens)}
        self.vocab_size = len(tokens)
        #: Special tokens by their text, but for one-character ones: text could not be kept apart from those.
        self.special_ids = {
            token: id
            for id, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind == _CONTROL and len(token) > 1
        }
        self.token_bytes: list[bytes] = [
            _token_bytes(token, kind) for token, kind in zip(tokens, types, strict=True)
        ]
        #: Ids that end a generation unless the client asked to ignore them.
        self.stop_ids = self._stop_ids(gguf, ids)
        self._bpe = _build_bpe(gguf, ids)
        self._special_pattern = _alternatives(self.special_ids)
        self._bos_id = _token_id(gguf, "tokenizer.ggml.bos_token_id", self.vocab_size)
        self.adds_bos = self._bos_id is not None and gguf.get("tokenizer.ggml.add_bos_token", bool, False)
        self._template = self._chat_template(gguf, tokens)

    @classmethod
    def from_file(cls, path: Path) -> "Tokenizer":
        return cls(read_gguf(path))

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None

    def encode(self, text: str, allow_special: bool = False) -> list[int]:
        """Token ids of ``text``. Special tokens spelled out in it become their ids only with
        ``allow_special``.

        Raises ValueError for text that is not Unicode (lone surrogates).
        """
        if not allow_special or self._special_pattern is None:
            return self._encode_plain(text)
        ids: list[int] = []
        for piece in self._special_pattern.split(text):
            special = self.special_ids.get(piece)
            ids += self._encode_plain(piece) if special is None else [special]
        return ids

    def completion_prompt(self, text: str) -> list[int]:
        """``encode`` of a raw prompt, preceded by the beginning-of-sequence token if the model wants one."""
        ids = self._encode_plain(text)
        return [self._bos_id, *ids] if self.adds_bos and self._bos_id is not None else ids

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Prompt ids of a chat, ready for the assistant's turn. Messages have ``role`` and ``content``.

        Raises ChatTemplateError with a text for the client.
        """
        if self._template is None:
            raise ChatTemplateError("this model has no chat template; use completions")
        ids: list[int] = []
        for piece, special in self._template.render(messages):
            ids += [self.special_ids[piece]] if special else self._encode_plain(piece)
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of ``ids``; bytes that are no UTF-8 become U+FFFD. Unknown ids are nothing."""
        detokenizer = IncrementalDetokenizer(self, skip_special)
        return "".join(map(detokenizer.push, ids)) + detokenizer.flush()

    def _encode_plain(self, text: str) -> list[int]:
        if not text:
            return []
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"text is not Unicode: lone surrogate at character {error.start}") from error
        # The batch call is the one that releases the GIL.
        return self._bpe.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def _stop_ids(self, gguf: GgufFile, ids: Mapping[str, int]) -> frozenset[int]:
        named = [_token_id(gguf, f"tokenizer.ggml.{key}_token_id", self.vocab_size) for key in ("eos", "eot")]
        known = [ids[token] for token in _END_TOKENS if token in self.special_ids]
        return frozenset(id for id in (*named, *known) if id is not None)

    def _chat_template(self, gguf: GgufFile, tokens: list[str]) -> ChatTemplate | None:
        source = gguf.get("tokenizer.chat_template", str, "")
        if not source:
            return None
        eos_id = _token_id(gguf, "tokenizer.ggml.eos_token_id", self.vocab_size)
        return ChatTemplate(
            source,
            special_pattern=self._special_pattern,
            bos_token="" if self._bos_id is None else tokens[self._bos_id],
            eos_token="" if eos_id is None else tokens[eos_id],
        )


class IncrementalDetokenizer:
    """Turns ids into text as they come, never splitting a character.

    Bytes of an incomplete character are held back until it completes or can no longer; the concatenation of
    all ``push`` and the final ``flush`` equals the decoding of the whole.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._bytes = tokenizer.token_bytes
        self._skipped = frozenset(tokenizer.special_ids.values()) if skip_special else frozenset[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that became certain with this token; often empty in the middle of a character."""
        if token_id in self._skipped or not 0 <= token_id < len(self._bytes):
            return ""
        return self._decoder.decode(self._bytes[token_id])

    def flush(self) -> str:
        """What an unfinished character at the end amounts to: U+FFFD or nothing."""
        return self._decoder.decode(b"", final=True)


def _check_kind(gguf: GgufFile) -> None:
    kind = gguf.get("tokenizer.ggml.model", str)
    if kind != "gpt2":
        raise ModelUnsupported(
            f"{gguf.path.name}: tokenizer {kind[:64]!r} is not supported (supported: gpt2, byte-level BPE)"
        )
    if gguf.get("tokenizer.ggml.add_space_prefix", bool, False):
        raise ModelUnsupported(f"{gguf.path.name}: a tokenizer that adds a leading space is not supported")


def _pre_tokenizer(gguf: GgufFile) -> pre_tokenizers.PreTokenizer:
    """How text is cut into words before merging, by the name that GGUF gives to the rule."""
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    kind = gguf.get("tokenizer.ggml.pre", str, "gpt-2")
    if kind in ("gpt-2", "default"):
        return gpt2
    if kind == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    raise ModelUnsupported(
        f"{gguf.path.name}: pre-tokenizer {kind[:64]!r} is not supported (supported: smollm, gpt-2)"
    )


def _build_bpe(gguf: GgufFile, ids: dict[str, int]) -> tokenizers.Tokenizer:
    merges: list[tuple[str, str]] = []
    for merge in gguf.strings("tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            raise ModelUnsupported(
                f"{gguf.path.name}: merge {merge[:64]!r} is of tokens not in the vocabulary"
            )
        merges.append((left, right))
    bpe = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=merges))
    bpe.pre_tokenizer = _pre_tokenizer(gguf)
    return bpe


def _token_bytes(token: str, kind: int) -> bytes:
    if kind == _UNUSED:
        return b""
    return token.encode() if kind in (_CONTROL, _USER_DEFINED) else bytes_of_token(token)


def _token_id(gguf: GgufFile, key: str, vocab_size: int) -> int | None:
    if key not in gguf.metadata:
        return None
    id = gguf.get(key, int)
    if not 0 <= id < vocab_size:
        raise ModelUnsupported(f"{gguf.path.name}: {key} is {id}, but there are {vocab_size} tokens")
    return id


def _alternatives(tokens: Mapping[str, int]) -> "re.Pattern[str] | None":
    """Matches any of ``tokens``, the longest first; captures, so that ``split`` keeps what it matched."""
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None
