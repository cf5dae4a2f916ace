"""The tokenizer of a Hugging Face directory: ``tokenizer.json`` without its special tokens, which
``tokenizer.py`` finds itself, and what the files beside it say of special tokens, ends and chats."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from infer_engine.byte_alphabet import bytes_of_token
from infer_engine.model.errors import ModelUnavailable, ModelUnsupported
from infer_engine.model.hf_directory import HfDirectory
from infer_engine.model.hyper_parameters import MOST_VOCABULARY
from infer_engine.model.json_file import JsonObject, ensure_regular, read_json
from infer_engine.model.token_table import END_TOKENS, TokenTable, spelled_by_piece

_MOST_BYTES = 1 << 26
_MOST_SMALL_BYTES = 1 << 23
_MOST_TEMPLATE_BYTES = 1 << 20
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
#: Ways of matching an added token that are not followed here.
_MATCHING = ("lstrip", "rstrip", "single_word")


@dataclass(frozen=True, slots=True)
class _Added:
    """A token that is found before any merging."""

    text: str
    id: int
    special: bool


def read_hf_vocabulary(directory: HfDirectory) -> TokenTable:
    """Raises ModelUnavailable without a ``tokenizer.json``, ModelUnsupported for one that is damaged or of
    another kind than BPE."""
    path = directory.path
    file = read_json(path / "tokenizer.json", _MOST_BYTES)
    limit = directory.config.bounded("vocab_size", MOST_VOCABULARY)
    ids = _ids(file, limit)
    added = list(_added_tokens(file, limit))
    config = _optional(path / "tokenizer_config.json")
    named = _named_tokens(config, _optional(path / "special_tokens_map.json"))
    special_ids = {each.text: each.id for each in added if each.special and len(each.text) > 1}
    encoder, later_encoder = _encoders(file)
    all_ids = {**ids, **{each.text: each.id for each in added}}
    return TokenTable(
        token_bytes=_token_bytes(file, ids, added),
        special_ids=special_ids,
        word_ids={each.text: each.id for each in added if not each.special},
        stop_ids=_stop_ids(directory, limit, named, special_ids, all_ids),
        encoder=encoder,
        later_encoder=later_encoder,
        prefix_ids=_prefix_ids(file, limit),
        adds_space=_spelling(file) == "pieces",
        chat_template=_chat_template(path, config),
        named_tokens=named,
    )


def _optional(path: Path) -> JsonObject:
    if not path.exists():
        return JsonObject(f"{path.parent.name}/{path.name}", {})
    return read_json(path, _MOST_SMALL_BYTES)


def _model(file: JsonObject) -> JsonObject:
    model = file.object("model")
    kind = model.get("type", str, "none") if model else "none"
    if model is None or kind != "BPE":
        raise ModelUnsupported(f"{file.label}: model.type is {kind[:64]!r}, allowed is 'BPE'")
    if model.values.get("dropout"):
        raise ModelUnsupported(f"{file.label}: model.dropout is given, which would make prompts random")
    return model


def _ids(file: JsonObject, limit: int) -> dict[str, int]:
    vocabulary = _model(file).object("vocab")
    if vocabulary is None:
        raise ModelUnsupported(f"{file.label}: model.vocab is missing or empty")
    for token, id in vocabulary.values.items():
        _check_id(file, f"the id of token {token[:64]!r}", id, limit)
    return vocabulary.values


def _check_id(file: JsonObject, what: str, id: object, limit: int) -> None:
    if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < limit:
        raise ModelUnsupported(
            f"{file.label}: {what} is {str(id)[:32]}, allowed is 0 to {limit - 1} (vocab_size in config.json)"
        )


def _added_tokens(file: JsonObject, limit: int) -> Iterator[_Added]:
    listed = file.values.get("added_tokens") or []
    if not isinstance(listed, list):
        raise ModelUnsupported(f"{file.label}: added_tokens should be a list")
    for entry in listed:
        if not isinstance(entry, dict):
            raise ModelUnsupported(f"{file.label}: added_tokens should hold objects")
        fields = JsonObject(f"{file.label}: added_tokens", entry)
        text, id = fields.get("content", str), fields.get("id", int)
        _check_id(file, f"the id of token {text[:64]!r}", id, limit)
        for way in _MATCHING:
            if fields.get(way, bool, False):
                raise ModelUnsupported(
                    f"{file.label}: added token {text[:64]!r} has {way}, which is not supported"
                )
        if text:
            yield _Added(text, id, fields.get("special", bool, False))


def _spelling(file: JsonObject) -> str:
    """``bytes``: tokens are written in the byte alphabet; ``pieces``: as SentencePiece does."""
    kinds = {str(each.get("type")) for each in _steps(file.values.get("decoder"), "decoders")}
    if "ByteLevel" in kinds:
        return "bytes"
    if kinds & {"ByteFallback", "Metaspace"}:
        return "pieces"
    raise ModelUnsupported(
        f"{file.label}: decoder is {str(sorted(kinds))[:64]}, "
        "allowed are ByteLevel, ByteFallback and Metaspace"
    )


def _steps(step: Any, within: str) -> Iterator[dict[str, Any]]:
    """``step``, or what it is a sequence of."""
    if isinstance(step, dict):
        yield step
        inner = step.get(within)
        for each in inner if isinstance(inner, list) else ():
            yield from _steps(each, within)


def _token_bytes(file: JsonObject, ids: Mapping[str, int], added: list[_Added]) -> list[bytes]:
    spelled = bytes_of_token if _spelling(file) == "bytes" else spelled_by_piece
    most = max([*ids.values(), *(each.id for each in added)])
    found = [b""] * (most + 1)
    for token, id in ids.items():
        found[id] = spelled(token)
    for each in added:
        found[each.id] = each.text.encode(errors="replace")
    unknown = _model(file).values.get("unk_token")
    if _spelling(file) == "pieces" and isinstance(unknown, str) and unknown in ids:
        found[ids[unknown]] = b""
    return found


def _encoders(file: JsonObject) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    """For text at a beginning, and for text after a special token."""
    plain = {**file.values, "added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    encoder = _build(file, plain)
    later = json.loads(json.dumps(plain.get("pre_tokenizer")))
    firsts = [
        step
        for step in _steps(later, "pretokenizers")
        if step.get("type") == "Metaspace" and step.get("prepend_scheme") == "first"
    ]
    if not firsts:
        return encoder, encoder
    for step in firsts:
        step["prepend_scheme"] = "never"
    return encoder, _build(file, {**plain, "pre_tokenizer": later})


def _build(file: JsonObject, content: dict[str, Any]) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises no other kind
        raise ModelUnsupported(f"{file.label}: {str(error)[:200]}") from error


def _prefix_ids(file: JsonObject, limit: int) -> tuple[int, ...]:
    """What the post-processor puts before a text. (transformers, too, heeds it alone where there is a
    tokenizer.json, whatever ``add_bos_token`` says.)"""
    prefix: list[int] = []
    for step in _steps(file.values.get("post_processor"), "processors"):
        kind = step.get("type")
        if kind in ("Sequence", "ByteLevel"):
            continue
        if kind != "TemplateProcessing":
            raise ModelUnsupported(
                f"{file.label}: post_processor {str(kind)[:64]!r} is not supported "
                "(supported: ByteLevel, TemplateProcessing)"
            )
        try:
            known = step["special_tokens"]
            parts = [each.get("SpecialToken") for each in step["single"]]
            at = parts.index(None)  # where the text goes
            for part in parts[:at]:
                prefix += known[part["id"]]["ids"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelUnsupported(f"{file.label}: post_processor is malformed: {error!r}") from error
        if parts[at + 1 :]:
            raise ModelUnsupported(
                f"{file.label}: post_processor ends every text with a token, which is not supported"
            )
    for id in prefix:
        _check_id(file, "a token of the post_processor", id, limit)
    return tuple(prefix)


def _named_tokens(config: JsonObject, older: JsonObject) -> dict[str, str]:
    named: dict[str, str] = {}
    for name in _NAMED_TOKENS:
        value = config.values.get(name) or older.values.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if value is not None and not isinstance(value, str):
            raise ModelUnsupported(f"{config.label}: {name} should be a text, not {type(value).__name__}")
        if value is not None:
            named[name] = value
    return named


def _stop_ids(
    directory: HfDirectory,
    limit: int,
    named: Mapping[str, str],
    special_ids: Mapping[str, int],
    ids: Mapping[str, int],
) -> frozenset[int]:
    """All that any of the files names, and the well-known ends."""
    stops = {special_ids[token] for token in END_TOKENS if token in special_ids}
    if named.get("eos_token") in ids:
        stops.add(ids[named["eos_token"]])
    for file in (directory.config, _optional(directory.path / "generation_config.json")):
        given = file.values.get("eos_token_id")
        for id in given if isinstance(given, list) else [given]:
            if id is not None:
                _check_id(file, "eos_token_id", id, limit)
                stops.add(id)
    return frozenset(stops)


def _chat_template(path: Path, config: JsonObject) -> str:
    """The file of its own comes first; of several named ones the default."""
    file = path / "chat_template.jinja"
    if file.exists():
        ensure_regular(file)
        try:
            with file.open("rb") as opened:
                content = opened.read(_MOST_TEMPLATE_BYTES + 1)
            if len(content) > _MOST_TEMPLATE_BYTES:
                raise ModelUnsupported(
                    f"{path.name}/{file.name} is larger than {_MOST_TEMPLATE_BYTES:,} bytes"
                )
            return content.decode()
        except OSError as error:
            raise ModelUnavailable(f"cannot read {path.name}/{file.name}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ModelUnsupported(f"{path.name}/{file.name} is not UTF-8") from error
    given = config.values.get("chat_template")
    if isinstance(given, list):
        named = (each for each in given if isinstance(each, dict) and each.get("name") == "default")
        given = next(named, {}).get("template")
    if given is not None and not isinstance(given, str):
        raise ModelUnsupported(f"{config.label}: chat_template should be a text or a list of named ones")
    return given or ""
