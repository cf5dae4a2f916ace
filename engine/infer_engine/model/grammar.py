"""Constrained output: which tokens may come next so that the whole answer matches a JSON schema or a regular
expression. The library is ``llguidance``; nothing of it shows outside of this file.

A grammar's work is bounded by the library's own limits (counted, so that they hold alike on every
machine) and, where those do not reach, by what ``constraint_limits`` refuses beforehand.
"""

import json

import llguidance.numpy as masks
import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from infer_engine.model.constraint_limits import ConstraintError, check_limits
from infer_engine.model.sampling import Constraint
from infer_engine.model.vocabulary import Vocabulary

#: Roughly a quarter of the library's own: a mask takes some milliseconds at worst, a lexer some 40 MB.
_LIMITS = LLParserLimits(
    initial_lexer_fuel=500_000,
    step_lexer_fuel=100_000,
    step_max_items=20_000,
    max_lexer_states=20_000,
    max_grammar_size=100_000,
    verbose_errors=False,
)
#: Whitespace between the tokens of JSON: without a bound, a model that likes it never ends.
_WHITESPACE = r"[\x20\x0A\x0D\x09]{1,20}"
#: Grammars whose compiled form is kept, to be copied for the next request with the same one.
_KEPT = 32
#: Put before the bytes of special tokens: no text has this byte, so no grammar asks for them.
_SPECIAL = b"\xff"


class GrammarStateError(Exception):
    """The constraint cannot be followed any further."""


class Grammars:
    """Compiles constraints for one vocabulary. Making one takes some hundred milliseconds. To be used by one
    thread at a time."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocab_size = vocabulary.vocab_size
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(_Pieces(vocabulary)),
            n_vocab=vocabulary.vocab_size,
            eos_token=sorted(vocabulary.stop_ids),
            slices=LLTokenizer.json_slices(),
        )
        self._compiled: dict[Constraint, LLMatcher] = {}

    def start(self, constraint: Constraint) -> "GrammarState":
        """At the beginning of an answer. ConstraintError, with a text for the client, when it is none, is too
        complex, or nothing matches it."""
        matcher = self._compiled.pop(constraint, None) or self._compile(constraint)
        self._compiled[constraint] = matcher
        while len(self._compiled) > _KEPT:
            del self._compiled[next(iter(self._compiled))]
        return GrammarState(matcher.deep_copy(), self.vocab_size)

    def _compile(self, constraint: Constraint) -> LLMatcher:
        check_limits(constraint)
        try:
            matcher = LLMatcher(self._tokenizer, _grammar(constraint), log_level=0, limits=_LIMITS)
        except ValueError as error:
            raise ConstraintError(_first_line(str(error))) from None
        if matcher.is_error():
            raise ConstraintError(_first_line(matcher.get_error()))
        try:
            GrammarState(matcher.deep_copy(), self.vocab_size).allowed()
        except GrammarStateError as error:
            raise ConstraintError(f"no text matches it, or it is too complex ({error})") from None
        return matcher


class GrammarState:
    """Where one answer stands in its grammar."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._mask = masks.allocate_token_bitmask(1, vocab_size)
        self._vocab_size = vocab_size
        #: Tokens taken in so far.
        self.length = 0

    def push(self, token: int) -> None:
        """GrammarStateError when the grammar does not allow it."""
        if not self._matcher.consume_token(token):
            # The library's own message quotes the token, and errors end in logs.
            raise GrammarStateError(f"token {self.length + 1} of the answer is not allowed by it")
        self.length += 1

    def allowed(self) -> NDArray[np.bool_]:
        """[vocab]: the tokens that may come next; only stop tokens where the answer is complete.
        GrammarStateError when none may."""
        matcher = self._matcher
        masks.fill_next_token_bitmask(matcher, self._mask)
        if matcher.is_error():
            raise GrammarStateError(_first_line(matcher.get_error()))
        # At a dead end the library lets the stop tokens through as well.
        if matcher.is_stopped() and not matcher.is_accepting():
            raise GrammarStateError("no token can follow")
        bits = np.unpackbits(self._mask.view(np.uint8)[0], bitorder="little")[: self._vocab_size]
        return bits.view(np.bool_)


class _Pieces:
    """The vocabulary as the library wants it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        special = frozenset(vocabulary.special_ids.values())
        self._encode = vocabulary.encode
        self.eos_token_id = min(vocabulary.stop_ids)
        self.bos_token_id = None
        self.special_token_ids = sorted(special)
        self.tokens = [
            _SPECIAL + piece if id in special else piece for id, piece in enumerate(vocabulary.token_bytes)
        ]

    def __call__(self, text: bytes) -> list[int]:
        """Asked for where the grammar leaves no choice of bytes: then the tokens are those that the model
        itself would have cut the text into."""
        return self._encode(text.decode(errors="replace"))


def _grammar(constraint: Constraint) -> str:
    if constraint.kind == "regex":
        return LLMatcher.grammar_from_regex(constraint.source)
    return LLMatcher.grammar_from_json_schema(
        constraint.source, overrides={"whitespace_pattern": _WHITESPACE}
    )


def _first_line(text: str) -> str:
    """What is wrong, without the library's excerpts of its own form of the grammar."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("error:")]
    return next(iter(named or lines), "").removeprefix("error:").strip()[:300]


def json_object() -> Constraint:
    """Any JSON object."""
    return Constraint(kind="json_schema", source=json.dumps({"type": "object"}))
