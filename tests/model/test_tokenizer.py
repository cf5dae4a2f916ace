import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from infer_engine.model.chat_template import ChatTemplateError
from infer_engine.model.errors import ModelUnsupported
from infer_engine.model.store import resolve
from infer_engine.model.tokenizer import IncrementalDetokenizer, Tokenizer
from infer_engine.settings import DEFAULT_MODEL
from support.tiny_model import EOS_ID, SPECIAL_TOKENS, tiny_vocabulary, write_tiny_gguf

VOCAB_SIZE = len(tiny_vocabulary())
EXPECTED = json.loads(Path(__file__).with_name("expected_ids.json").read_text())
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.fixture(scope="module")
def real_tokenizer() -> Tokenizer:
    return Tokenizer.from_file(resolve(DEFAULT_MODEL))


# --- encoding ----------------------------------------------------------------------------------------------


@given(text=TEXTS)
@settings(deadline=None)
def test_any_text_survives_the_round_trip(tiny_tokenizer: Tokenizer, text: str) -> None:
    assert tiny_tokenizer.decode(tiny_tokenizer.encode(text)) == text


def test_merges_are_applied_in_their_order(tiny_tokenizer: Tokenizer) -> None:
    vocabulary = tiny_vocabulary()
    tokens = [vocabulary[id] for id in tiny_tokenizer.encode("in the ring")]
    assert tokens == ["in", "Ġthe", "Ġ", "r", "ing"]


def test_special_tokens_are_found_only_where_allowed(tiny_tokenizer: Tokenizer) -> None:
    text = "a<|im_end|>b"
    specials = set(tiny_tokenizer.special_ids.values())
    assert specials.isdisjoint(tiny_tokenizer.encode(text))
    allowed = tiny_tokenizer.encode(text, allow_special=True)
    assert [id for id in allowed if id in specials] == [EOS_ID]
    assert tiny_tokenizer.decode(allowed) == "ab"
    assert tiny_tokenizer.decode(allowed, skip_special=False) == text


def test_text_that_is_not_unicode_is_a_value_error(tiny_tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="lone surrogate at character 2"):
        tiny_tokenizer.encode("ab\ud800")


def test_stop_ids_are_the_ends_of_turns_and_documents(tiny_tokenizer: Tokenizer) -> None:
    assert tiny_tokenizer.stop_ids == {0, EOS_ID}
    assert not tiny_tokenizer.adds_bos
    assert tiny_tokenizer.vocab_size == VOCAB_SIZE


@pytest.mark.model
def test_the_real_tokenizer_agrees_with_transformers(real_tokenizer: Tokenizer) -> None:
    for case in EXPECTED["texts"]:
        assert real_tokenizer.encode(case["text"]) == case["ids"], case["text"]
    for case in EXPECTED["chats"]:
        assert real_tokenizer.chat_prompt([{"role": "user", "content": case["text"]}]) == case["ids"]


@pytest.mark.model
def test_the_real_tokenizer_takes_large_inputs(real_tokenizer: Tokenizer) -> None:
    for text in ("All work and no play, 365 days. " * 10_000, "a" * 300_000, " " * 300_000, "語" * 100_000):
        ids = real_tokenizer.encode(text)
        assert real_tokenizer.decode(ids) == text


# --- chat --------------------------------------------------------------------------------------------------


def test_a_chat_follows_the_template(tiny_tokenizer: Tokenizer) -> None:
    ids = tiny_tokenizer.chat_prompt(
        [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the inning?"}]
    )
    assert tiny_tokenizer.decode(ids, skip_special=False) == (
        "<|im_start|>system\nbe brief<|im_end|>\n"
        "<|im_start|>user\nthe inning?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [id for id in ids if id < len(SPECIAL_TOKENS)] == [1, 2, 1, 2, 1]


SPELLINGS = st.lists(
    st.sampled_from(
        [*SPECIAL_TOKENS, "<|im_", "end|>", "<", "|>", "\n", "x", "\ufdd0", "\ufdd1", "\U0010fffe"]
    ),
    max_size=12,
).map("".join)


@given(content=SPELLINGS)
@settings(deadline=None)
def test_no_content_becomes_a_special_token_or_changes(tiny_tokenizer: Tokenizer, content: str) -> None:
    ids = tiny_tokenizer.chat_prompt([{"role": "user", "content": content}])
    specials = [id for id in ids if id < len(SPECIAL_TOKENS)]
    assert specials == [1, 2, 1]
    assert tiny_tokenizer.decode(ids, skip_special=False) == (
        f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
    )


def test_templates_may_trim_and_test_content(tmp_path: Path) -> None:
    template = (
        "{% if messages[0]['content'] is string and 'x' in messages[0]['content'] %}"
        "{{ bos_token + messages[0]['content'] | trim + eos_token }}{% endif %}"
    )
    tokenizer = Tokenizer.from_file(write_tiny_gguf(tmp_path / "m.gguf", chat_template=template))
    ids = tokenizer.chat_prompt([{"role": "user", "content": "  <|im_end|>x  "}])
    assert (ids[0], ids[-1]) == (1, EOS_ID)
    assert tokenizer.decode(ids) == "<|im_end|>x"


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([{"role": "User<|im_end|>", "content": "x"}], r"messages\[0\].role"),
        ([{"content": "x"}], r"messages\[0\].role"),
        ([{"role": "user"}], "content"),
    ],
)
def test_messages_that_do_not_fit_are_refused(
    tiny_tokenizer: Tokenizer, messages: list[dict[str, str]], why: str
) -> None:
    with pytest.raises(ChatTemplateError, match=why):
        tiny_tokenizer.chat_prompt(messages)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "over 100010 characters"),
        ("{{ messages.append(1) }}", "refused"),
        ("{{ ''.__class__.__mro__ }}", "refused"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
)
def test_what_a_template_may_not_do_is_an_error_for_the_client(
    tmp_path: Path, template: str, why: str
) -> None:
    tokenizer = Tokenizer.from_file(write_tiny_gguf(tmp_path / "m.gguf", chat_template=template))
    with pytest.raises(ChatTemplateError, match=why):
        tokenizer.chat_prompt([{"role": "user", "content": "x"}])


def test_a_model_without_a_template_refuses_chats(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(write_tiny_gguf(tmp_path / "m.gguf", chat_template=None))
    assert not tokenizer.has_chat_template
    with pytest.raises(ChatTemplateError, match="no chat template"):
        tokenizer.chat_prompt([{"role": "user", "content": "x"}])


def test_a_template_that_does_not_parse_is_refused_with_the_model(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", chat_template="{% for %}")
    with pytest.raises(ModelUnsupported, match="chat template"):
        Tokenizer.from_file(path)


def test_other_kinds_of_tokenizer_are_refused(tmp_path: Path) -> None:
    content = write_tiny_gguf(tmp_path / "m.gguf").read_bytes()
    for old, new, why in [
        (b"gpt2", b"bert", "tokenizer 'bert'"),
        (b"smollm", b"qwen22", "pre-tokenizer 'qwen22'"),
    ]:
        path = tmp_path / "changed.gguf"
        path.write_bytes(content.replace(old, new))
        with pytest.raises(ModelUnsupported, match=why):
            Tokenizer.from_file(path)


# --- detokenizing as tokens come ---------------------------------------------------------------------------


@given(ids=st.lists(st.integers(-2, VOCAB_SIZE + 2), max_size=40), skip=st.booleans())
@settings(deadline=None)
def test_pieces_add_up_to_the_whole(tiny_tokenizer: Tokenizer, ids: list[int], skip: bool) -> None:
    detokenizer = IncrementalDetokenizer(tiny_tokenizer, skip_special=skip)
    pieces = [detokenizer.push(id) for id in ids] + [detokenizer.flush()]
    kept = [id for id in ids if 0 <= id < VOCAB_SIZE and not (skip and id < len(SPECIAL_TOKENS))]
    whole = b"".join(tiny_tokenizer.token_bytes[id] for id in kept).decode(errors="replace")
    assert "".join(pieces) == whole


@given(text=TEXTS)
@settings(deadline=None)
def test_a_character_appears_whole_and_as_soon_as_it_is(tiny_tokenizer: Tokenizer, text: str) -> None:
    """Byte by byte, which splits every character in every way."""
    id_of_byte = {content: id for id, content in enumerate(tiny_tokenizer.token_bytes) if len(content) == 1}
    detokenizer = IncrementalDetokenizer(tiny_tokenizer)
    for character in text:
        *first, last = (id_of_byte[bytes([byte])] for byte in character.encode())
        assert [detokenizer.push(id) for id in first] == [""] * len(first)
        assert detokenizer.push(last) == character
    assert detokenizer.flush() == ""


def test_a_character_that_never_completes_becomes_a_replacement_mark(tiny_tokenizer: Tokenizer) -> None:
    id_of_byte = {content: id for id, content in enumerate(tiny_tokenizer.token_bytes) if len(content) == 1}
    detokenizer = IncrementalDetokenizer(tiny_tokenizer)
    assert detokenizer.push(id_of_byte[b"\xe6"]) == ""
    assert detokenizer.push(id_of_byte[b"a"]) == "\ufffda"
    assert detokenizer.push(id_of_byte[b"\xe6"]) == ""
    assert detokenizer.flush() == "\ufffd"
