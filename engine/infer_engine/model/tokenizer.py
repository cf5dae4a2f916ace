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

from infer_engine.model.chat_template import ChatTemplate, ChatTemplateError
from infer_engine.model.gguf_file import GgufFile
from infer_engine.model.gguf_vocabulary import read_gguf_vocabulary
from infer_engine.model.hf_directory import HfDirectory
from infer_engine.model.hf_vocabulary import read_hf_vocabulary
from infer_engine.model.source import open_source


class Tokenizer:
    """Immutable and safe to use from several threads; ``encode`` releases the GIL while it works."""

    def __init__(self, source: GgufFile | HfDirectory) -> None:
        """Takes well under a second for 50,000 tokens. Raises ModelError."""
        table = read_gguf_vocabulary(source) if isinstance(source, GgufFile) else read_hf_vocabulary(source)
        self.token_bytes: list[bytes] = table.token_bytes
        self.vocab_size = len(self.token_bytes)
        #: Special tokens by their text, but for one-character ones.
        self.special_ids = table.special_ids
        #: Ids that end a generation unless the client asked to ignore them.
        self.stop_ids = table.stop_ids
        self._encoder, self._later_encoder = table.encoder, table.later_encoder
        self._word_ids = table.word_ids
        self._word_pattern = _alternatives(self._word_ids)
        self._special_pattern = _alternatives(self.special_ids)
        self._prefix_ids = table.prefix_ids
        self._adds_space = table.adds_space
        self._template = (
            ChatTemplate(
                table.chat_template,
                special_pattern=self._special_pattern,
                named_tokens=table.named_tokens,
            )
            if table.chat_template
            else None
        )

    @classmethod
    def from_file(cls, path: Path) -> "Tokenizer":
        """Of a GGUF file or a Hugging Face directory."""
        return cls(open_source(path))

    @property
    def adds_bos(self) -> bool:
        """Texts that are no chats begin with a token of their own."""
        return bool(self._prefix_ids)

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
            ids += self._encode_plain(piece, later=bool(ids)) if special is None else [special]
        return ids

    def completion_prompt(self, text: str) -> list[int]:
        """``encode`` of a raw prompt, preceded by the beginning-of-sequence token if the model wants one."""
        return [*self._prefix_ids, *self._encode_plain(text)]

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Prompt ids of a chat, ready for the assistant's turn. Messages have ``role`` and ``content``.

        Raises ChatTemplateError with a text for the client.
        """
        if self._template is None:
            raise ChatTemplateError("this model has no chat template; use completions")
        ids: list[int] = []
        for piece, special in self._template.render(messages):
            ids += [self.special_ids[piece]] if special else self._encode_plain(piece, later=bool(ids))
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of ``ids``; bytes that are no UTF-8 become U+FFFD. Unknown ids are nothing."""
        detokenizer = IncrementalDetokenizer(self, skip_special)
        text = "".join(map(detokenizer.push, ids)) + detokenizer.flush()
        return text.removeprefix(" ") if self._adds_space else text

    def _encode_plain(self, text: str, *, later: bool = False) -> list[int]:
        """``later``: a token has come before."""
        if not text:
            return []
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"text is not Unicode: lone surrogate at character {error.start}") from error
        if self._word_pattern is None:
            return _run(self._later_encoder if later else self._encoder, text)
        ids: list[int] = []
        for piece in self._word_pattern.split(text):
            word = self._word_ids.get(piece)
            if word is not None:
                ids.append(word)
            elif piece:
                ids += _run(self._later_encoder if later or ids else self._encoder, piece)
        return ids


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


def _run(encoder: tokenizers.Tokenizer, text: str) -> list[int]:
    # The batch call is the one that releases the GIL.
    return encoder.encode_batch_fast([text], add_special_tokens=False)[0].ids


def _alternatives(tokens: Mapping[str, int]) -> "re.Pattern[str] | None":
    """Matches any of ``tokens``, the longest first; captures, so that ``split`` keeps what it matched."""
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None
