"""The tokenizer of a GGUF file: byte-level BPE, or the SentencePiece kind of the first Llamas."""

from collections.abc import Mapping

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers

from infer_engine.byte_alphabet import bytes_of_token
from infer_engine.model.errors import ModelUnsupported
from infer_engine.model.gguf_file import GgufFile
from infer_engine.model.token_table import END_TOKENS, TokenTable, spelled_by_piece

#: GGUF token types.
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5
#: How words are told apart before merging, by the name that GGUF gives to the rule: contractions, letters
#: with what stands before them, digits (so many together), punctuation, line ends, spaces.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
_QWEN2 = ("qwen2",)
_GPT2 = ("gpt-2", "default")
_SMOLLM = ("smollm",)


def read_gguf_vocabulary(gguf: GgufFile) -> TokenTable:
    """Takes well under a second for 50,000 tokens. Raises ModelUnsupported."""
    kind = gguf.get("tokenizer.ggml.model", str)
    if kind not in ("gpt2", "llama"):
        raise ModelUnsupported(
            f"{gguf.path.name}: tokenizer {kind[:64]!r} is not supported "
            "(supported: gpt2, byte-level BPE, and llama, SentencePiece BPE)"
        )
    tokens = gguf.strings("tokenizer.ggml.tokens")
    types = gguf.integers("tokenizer.ggml.token_type")
    if not tokens or len(types) != len(tokens):
        raise ModelUnsupported(f"{gguf.path.name}: {len(tokens)} tokens but {len(types)} token types")
    ids = {token: id for id, token in enumerate(tokens)}
    typed = list(zip(tokens, types, strict=True))
    adds_space = gguf.get("tokenizer.ggml.add_space_prefix", bool, kind == "llama")
    encoder = (
        _byte_level(gguf, ids, adds_space)
        if kind == "gpt2"
        else _pieces(gguf, tokens, types, ids, adds_space)
    )
    special_ids = {token: ids[token] for token, type in typed if type == _CONTROL and len(token) > 1}
    bos_id = _token_id(gguf, "tokenizer.ggml.bos_token_id", len(tokens))
    eos_id = _token_id(gguf, "tokenizer.ggml.eos_token_id", len(tokens))
    # Files that do not say were made for a reader that knows what these kinds do.
    usual = kind == "llama" or gguf.get("tokenizer.ggml.pre", str, "") in _LLAMA3
    adds_bos = bos_id is not None and gguf.get("tokenizer.ggml.add_bos_token", bool, usual)
    return TokenTable(
        token_bytes=[_token_bytes(token, type, kind) for token, type in typed],
        special_ids=special_ids,
        word_ids={token: ids[token] for token, type in typed if type == _USER_DEFINED and token},
        stop_ids=_stop_ids(gguf, ids, special_ids),
        encoder=encoder,
        later_encoder=encoder,
        prefix_ids=(bos_id,) if adds_bos and bos_id is not None else (),
        adds_space=adds_space,
        chat_template=gguf.get("tokenizer.chat_template", str, ""),
        named_tokens={
            name: "" if id is None else tokens[id]
            for name, id in (("bos_token", bos_id), ("eos_token", eos_id))
        },
    )


def _byte_level(gguf: GgufFile, ids: dict[str, int], adds_space: bool) -> tokenizers.Tokenizer:
    if adds_space:
        raise ModelUnsupported(
            f"{gguf.path.name}: a byte-level tokenizer that adds a leading space is not supported"
        )
    kind = gguf.get("tokenizer.ggml.pre", str, "gpt-2")
    merges: list[tuple[str, str]] = []
    for merge in gguf.strings("tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            raise ModelUnsupported(
                f"{gguf.path.name}: merge {merge[:64]!r} is of tokens not in the vocabulary"
            )
        merges.append((left, right))
    bpe = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=kind in _LLAMA3))
    bpe.pre_tokenizer = _pre_tokenizer(gguf, kind)
    if kind in _QWEN2:
        bpe.normalizer = normalizers.NFC()
    return bpe


def _pre_tokenizer(gguf: GgufFile, kind: str) -> pre_tokenizers.PreTokenizer:
    """How text is cut into words before merging."""
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind in _GPT2:
        return gpt2
    if kind in _SMOLLM:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    if kind in (*_LLAMA3, *_QWEN2):
        words = _WORDS.format(digits="{1,3}" if kind in _LLAMA3 else "")
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(words), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    raise ModelUnsupported(
        f"{gguf.path.name}: pre-tokenizer {kind[:64]!r} is not supported "
        f"(supported: {', '.join((*_SMOLLM, *_LLAMA3, *_QWEN2, *_GPT2))})"
    )


def _pieces(
    gguf: GgufFile, tokens: list[str], types: list[int], ids: dict[str, int], adds_space: bool
) -> tokenizers.Tokenizer:
    """SentencePiece keeps a score for each token instead of merges: of all pairs that make a token, the one
    with the highest score is merged first."""
    scores = gguf.numbers("tokenizer.ggml.scores")
    if len(scores) != len(tokens):
        raise ModelUnsupported(f"{gguf.path.name}: {len(tokens)} tokens but {len(scores)} scores")
    ranked: list[tuple[float, int, int, str, str]] = []
    for token, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                ranked.append((-score, ids[left], ids[right], left, right))
    merges = [(left, right) for *_, left, right in sorted(ranked)]
    unknown = next((token for token, type in zip(tokens, types, strict=True) if type == _UNKNOWN), None)
    bpe = tokenizers.Tokenizer(
        models.BPE(vocab=ids, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    marks = normalizers.Replace(" ", "▁")
    bpe.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), marks]) if adds_space else marks
    return bpe


def _token_bytes(token: str, type: int, kind: str) -> bytes:
    if type in (_UNUSED, _UNKNOWN):
        return b""
    if type in (_CONTROL, _USER_DEFINED):
        return token.encode()
    return bytes_of_token(token) if kind == "gpt2" else spelled_by_piece(token)


def _stop_ids(gguf: GgufFile, ids: Mapping[str, int], special_ids: Mapping[str, int]) -> frozenset[int]:
    named = [_token_id(gguf, f"tokenizer.ggml.{key}_token_id", len(ids)) for key in ("eos", "eot")]
    known = [ids[token] for token in END_TOKENS if token in special_ids]
    return frozenset(id for id in (*named, *known) if id is not None)


def _token_id(gguf: GgufFile, key: str, vocab_size: int) -> int | None:
    if key not in gguf.metadata:
        return None
    id = gguf.get(key, int)
    if not 0 <= id < vocab_size:
        raise ModelUnsupported(f"{gguf.path.name}: {key} is {id}, but there are {vocab_size} tokens")
    return id
