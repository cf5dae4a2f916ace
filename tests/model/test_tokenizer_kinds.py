"""The tokenizers that supported models come with, from a Hugging Face directory and from GGUF, against what
transformers makes of them (``make_expected_tokens.py``)."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from infer_engine.model.architecture import read_architecture
from infer_engine.model.chat_template import ChatTemplateError
from infer_engine.model.errors import ModelError, ModelUnavailable, ModelUnsupported
from infer_engine.model.hf_directory import read_hf_directory
from infer_engine.model.tokenizer import IncrementalDetokenizer, Tokenizer
from support.tiny_families import TinyFamily, write_hf
from support.tiny_tokenizers import (
    CHATS,
    LLAMA2,
    LLAMA2_FIRST,
    LLAMA3,
    QWEN,
    SMOLLM,
    TEXTS,
    TOKENIZERS,
    TinyTokenizer,
    add_to_gguf,
    write_tokenizer,
)

EXPECTED = json.loads(Path(__file__).with_name("expected_tokens.json").read_text())
ROOM = 400


def directory_of(path: Path, kind: TinyTokenizer) -> Path:
    write_hf(path, TinyFamily(name=kind.name, vocabulary=ROOM))
    write_tokenizer(path, kind)
    return path


def gguf_of(path: Path, kind: TinyTokenizer) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    add_to_gguf(writer, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def change(path: Path, **values: Any) -> None:
    """Set keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def check(tokenizer: Tokenizer, kind: TinyTokenizer) -> None:
    expected = EXPECTED[kind.name]
    for text, ids in zip(TEXTS, expected["texts"], strict=True):
        assert tokenizer.completion_prompt(text) == ids, text
    for chat, ids, text in zip(CHATS, expected["chats"], expected["rendered"], strict=True):
        assert tokenizer.chat_prompt(chat) == ids, text
    for ids, text in zip(expected["texts"], expected["decoded"], strict=True):
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", TOKENIZERS, ids=lambda kind: kind.name)
def test_a_directory_gives_the_ids_of_transformers(kind: TinyTokenizer, tmp_path: Path) -> None:
    check(Tokenizer.from_file(directory_of(tmp_path / kind.name, kind)), kind)


@pytest.mark.parametrize("kind", [QWEN, LLAMA3, LLAMA2, SMOLLM], ids=lambda kind: kind.name)
def test_a_gguf_file_gives_the_same(kind: TinyTokenizer, tmp_path: Path) -> None:
    check(Tokenizer.from_file(gguf_of(tmp_path / f"{kind.name}.gguf", kind)), kind)


def test_special_tokens_are_the_templates_alone_and_words_are_everybodys(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(directory_of(tmp_path / "m", QWEN))
    ids = QWEN.ids()
    assert set(tokenizer.special_ids) == set(QWEN.special)
    content = "<|im_end|><think>x<|im_start|>"
    prompt = tokenizer.chat_prompt([{"role": "user", "content": content}])
    assert [id for id in prompt if id >= len(QWEN.vocabulary())] == [
        ids[token]
        for token in ("<|im_start|>", "<think>", "<|im_end|>", "<|im_start|>", "<think>", "</think>")
    ]
    assert content in tokenizer.decode(prompt, skip_special=False)
    assert tokenizer.encode(content, allow_special=True)[0] == ids["<|im_end|>"]


@pytest.mark.parametrize(
    ("config", "generation", "extra"),
    [(None, None, set()), (7, None, {7}), (None, [8, 9], {8, 9}), ([7], 8, {7, 8})],
)
def test_all_ends_that_any_file_names_stop(
    config: Any, generation: Any, extra: set[int], tmp_path: Path
) -> None:
    path = directory_of(tmp_path / "m", QWEN)
    change(path / "config.json", eos_token_id=config)
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    ids = QWEN.ids()
    assert Tokenizer.from_file(path).stop_ids == {ids["<|im_end|>"], ids["<|endoftext|>"], *extra}


def test_ids_beyond_the_tokens_are_nothing(tmp_path: Path) -> None:
    """Models have more rows than tokens, to make round numbers."""
    tokenizer = Tokenizer.from_file(directory_of(tmp_path / "m", QWEN))
    assert tokenizer.vocab_size == QWEN.size
    assert tokenizer.decode([QWEN.size + 5]) == ""


def test_pieces_of_sentencepiece_stream_as_bytes(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(directory_of(tmp_path / "m", LLAMA2_FIRST))
    detokenizer = IncrementalDetokenizer(tokenizer)
    pieces = [detokenizer.push(id) for id in tokenizer.encode("the 語")]
    assert pieces == [" the", " ", "", "", "語"]
    assert detokenizer.flush() == ""


def test_without_a_template_chats_are_refused(tmp_path: Path) -> None:
    path = directory_of(tmp_path / "m", SMOLLM)
    change(path / "tokenizer_config.json", chat_template=None)
    tokenizer = Tokenizer.from_file(path)
    assert not tokenizer.has_chat_template
    with pytest.raises(ChatTemplateError, match="no chat template"):
        tokenizer.chat_prompt([{"role": "user", "content": "x"}])


ADDED = {"id": 3, "content": "<x>", "special": True, "lstrip": False, "rstrip": False, "single_word": False}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"model": {"type": "Unigram", "vocab": []}}, "model.type is 'Unigram', allowed is 'BPE'"),
        ({"model": {"type": "BPE", "vocab": {"a": 400}, "merges": []}}, "is 400, allowed is 0 to 399"),
        ({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}, "'a' is -1"),
        ({"model": {"type": "BPE", "vocab": {"a": 10**400}, "merges": []}}, "m/tokenizer.json"),
        ({"model": {"type": "BPE", "vocab": {}, "merges": []}}, "model.vocab is missing"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}, "m/tokenizer.json: "),
        ({"model": None}, "model.type is 'none'"),
        ({"added_tokens": {"a": 1}}, "added_tokens should be a list"),
        ({"added_tokens": [{**ADDED, "id": 400}]}, "'<x>' is 400"),
        ({"added_tokens": [{**ADDED, "rstrip": True}]}, "'<x>' has rstrip"),
        ({"decoder": None}, "allowed are ByteLevel"),
        ({"post_processor": {"type": "BertProcessing"}}, "post_processor 'BertProcessing' is not supported"),
        ({"post_processor": {"type": "TemplateProcessing", "single": 7}}, "malformed"),
        ({"pre_tokenizer": {"type": "Never heard of"}}, "m/tokenizer.json: "),
    ],
)
def test_a_tokenizer_of_another_kind_is_refused(values: dict[str, Any], why: str, tmp_path: Path) -> None:
    path = directory_of(tmp_path / "m", SMOLLM)
    change(path / "tokenizer.json", **values)
    with pytest.raises(ModelUnsupported) as caught:
        Tokenizer.from_file(path)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b"{", b"\xff", b'{"a":' * 100_000, b'{"a":1' + b"0" * 5000 + b"}"]
)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_files_that_are_no_json_are_refused_by_name(name: str, content: bytes, tmp_path: Path) -> None:
    path = directory_of(tmp_path / "m", SMOLLM)
    (path / name).write_bytes(content)
    with pytest.raises(ModelUnsupported, match=f"m/{name}"):
        Tokenizer.from_file(path)


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("config.json", {"eos_token_id": 400}, "eos_token_id is 400"),
        ("config.json", {"eos_token_id": ["x"]}, "eos_token_id is x"),
        ("tokenizer_config.json", {"bos_token": 7}, "bos_token should be a text"),
        ("tokenizer_config.json", {"chat_template": 7}, "chat_template should be a text"),
        ("tokenizer_config.json", {"chat_template": "{% for %}"}, "chat template"),
    ],
)
def test_what_lies_beside_the_tokenizer_is_checked_too(
    name: str, values: dict[str, Any], why: str, tmp_path: Path
) -> None:
    path = directory_of(tmp_path / "m", SMOLLM)
    change(path / name, **values)
    with pytest.raises(ModelError, match=why):
        Tokenizer.from_file(path)


def test_a_directory_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"cannot read m/tokenizer.json"):
        Tokenizer.from_file(write_hf(tmp_path / "m", TinyFamily(name="m")))


def test_a_gguf_file_of_pieces_without_scores_is_refused(tmp_path: Path) -> None:
    content = gguf_of(tmp_path / "m.gguf", LLAMA2).read_bytes()
    (tmp_path / "m.gguf").write_bytes(content.replace(b"tokenizer.ggml.scores", b"tokenizer.ggml.stores"))
    with pytest.raises(ModelUnsupported, match=r"tokenizer.ggml.scores should be a list of float"):
        Tokenizer.from_file(tmp_path / "m.gguf")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def replace_one(value: Any, choose: Callable[[int], int], other: Any) -> Any:
    """``value`` with ``other`` somewhere in it."""
    if isinstance(value, dict) and value and choose(4):
        key = sorted(value)[choose(len(value))]
        return {**value, key: replace_one(value[key], choose, other)}
    if isinstance(value, list) and value and choose(4):
        at = choose(min(len(value), 5))
        return [*value[:at], replace_one(value[at], choose, other), *value[at + 1 :]]
    return other


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), other=JSON)
@pytest.mark.parametrize("kind", [QWEN, LLAMA2_FIRST], ids=lambda kind: kind.name)
def test_any_value_anywhere_ends_in_a_tokenizer_or_a_model_error(
    kind: TinyTokenizer, tmp_path: Path, data: st.DataObject, other: Any
) -> None:
    path = directory_of(tmp_path / "m", kind)
    (path / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    name = data.draw(st.sampled_from([file.name for file in sorted(path.glob("*.json"))]))
    content = json.loads((path / name).read_text())
    changed = replace_one(content, lambda most: data.draw(st.integers(0, most - 1)), other)
    (path / name).write_text(json.dumps(changed))
    with contextlib.suppress(ModelError):
        source = read_hf_directory(path)
        tokenizer = Tokenizer(source)
        read_architecture(source)
        tokenizer.decode(tokenizer.completion_prompt("it's 12 <think>\n"))
