"""``infer-console plan``: needs no engine, and says the same as the screen."""

import json
from pathlib import Path

import pytest
from support.cli import Run, runner
from support.server import EngineServer

CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
}


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("INFER_CONSOLE_CONNECT", raising=False)

    return runner(capsys, "plan")


def test_for_a_person(plan: Run) -> None:
    result = plan("--model", "70b", "--gpu", "h100", "--gpus", "4", "--context", "8000")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == "70b@4×h100, 8,000 tokens of context"
    assert any(line.split()[:5] == ["KV", "per", "token", "327,680", "B"] for line in lines)
    marks = {line[:16].strip(): line.split()[-7:] for line in lines if "mark" in line}
    assert marks["65% batch mark"] == ["39", "102.2", "GB", "18.1", "ms", "55.3", "2,157", "–"][-7:]
    assert "488,281 tok" in result.out
    unasked = plan("--model", "8b", "--gpu", "h100").out
    assert unasked.splitlines()[0] == "8b@4×h100 (GPUs by default: --gpus), 8,000 tokens of context"


def test_as_json(plan: Run) -> None:
    result = plan("--model", "llama-70b", "--gpus", "4", "--price", "2.50", "--kv", "fp8", "--json")
    assert result.code == 0
    document = result.document
    assert document["version"] == 1
    assert document["model"]["name"] == "llama-3.1-70b"
    assert document["kv"]["bytes_per_token"] == 163_840
    assert document["price_per_gpu_hour"] == 2.5
    assert [each["fill"] for each in document["decode"]] == [
        "weights alone",
        "one sequence",
        "batch mark",
        "admit mark",
        "full",
    ]
    assert all(each["price_per_million_tokens"] > 0 for each in document["decode"])


def test_a_models_file(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, "sliding_window": 4096}))
    result = plan("--model", str(path), "--gpu", "l4", "--gpus", "1", "--json")
    assert result.code == 0
    assert result.document["model"]["parameters"] == 8_030_261_248
    assert "windows of 4096" in result.document["notes"][0]
    told = plan("--model", str(path), "--gpu", "l4", "--gpus", "1")
    assert "note: attention in windows" in told.err


def test_what_does_not_fit_has_its_numbers_and_an_exit_code(plan: Run) -> None:
    result = plan("--model", "70b", "--gpu", "l4", "--gpus", "4", "--json")
    assert result.code == 1
    assert "70b@4×l4 does not fit" in result.err
    assert (result.document["fits"], result.document["gpus_needed"]) == (False, 7)
    assert result.document["decode"] == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--model", "gpt-9"), "no model 'gpt-9' is known here"),
        (("--model", "/nowhere/config.json"), "/nowhere/config.json: No such file"),
        (("--model", "70b", "--gpus", "none"), "gpus: 'none' was given, allowed is a whole number"),
        (("--model", "70b", "--gpu", "tpu"), "gpu: 'tpu' was given, allowed is h100 or"),
        (("--model", "70b", "--gpu", "other"), "needs all of memory GB"),
        ((), "--model"),
    ],
)
def test_what_does_not_fit_an_option_is_told(plan: Run, words: tuple[str, ...], told: str) -> None:
    result = plan(*words)
    assert (result.code, result.out) == (2, "")
    assert told in result.err


def test_what_a_file_says_reaches_no_terminal_as_an_escape(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, "model_type": "\x1b[2J\x1b]0;owned\x07"}))
    result = plan("--model", str(path))
    assert result.code == 0
    assert "\x1b" not in result.out + result.err
    assert "estimated" in result.err


def test_a_sentence_without_an_engine_is_words_alone(plan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFER_CONSOLE_CONNECT", "unix:///nonexistent/c.sock")
    result = plan("--model", "70b", "--sentence", "two words", "--json")
    assert result.code == 0
    document = result.document["sentence"]
    assert document["words"] == ["two", "words"]
    assert document["tokens"] is document["kv"] is document["decode"] is document["tokenizer"] is None
    assert "cannot connect" in document["why_no_tokens"]
    shown = plan("--model", "70b", "--sentence", "two words")
    assert "'two words': 2 words" in shown.out
    assert "tokens are not known" in shown.err


def test_a_sentence_is_cut_by_the_engine_that_is_named(plan: Run, engine: EngineServer) -> None:
    words = ("--model", "70b", "--sentence", "in the hall", "--steps", "3", "--connect", engine.control_url)
    document = plan(*words, "--json").document["sentence"]
    tokens = document["tokens"]
    assert "".join(each["text"] for each in tokens) == "in the hall"
    assert [each["slot"] for each in tokens] == list(range(len(tokens)))
    assert document["kv"]["bytes"] == len(tokens) * 327_680
    assert document["kv"]["free_slots"] == 16 - len(tokens)
    assert [each["kv_read_bytes"] for each in document["decode"]] == [
        (len(tokens) + step) * 327_680 for step in (1, 2, 3)
    ]
    assert plan("--model", "70b", "--sentence", "\udcff", *words[-2:], "--json").document["sentence"][
        "tokens"
    ]
    shown = plan(*words).out
    assert f"{len(tokens)} tokens × 80 layers × 4,096 B" in shown


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--sentence", "a" * 401, "401 characters were given, allowed are 1 to 400"),
        ("--sentence", " ", "allowed are 1 to 400"),
        ("--steps", "257", "allowed is a whole number from 0 to 256"),
        ("--steps", "-1", "allowed is a whole number from 0 to 256"),
    ],
)
def test_what_does_not_fit_of_a_sentence(plan: Run, option: str, value: str, says: str) -> None:
    given = {"--sentence": "a", "--steps": "1"} | {option: value}
    result = plan("--model", "70b", *(f"{name}={text}" for name, text in given.items()))
    assert result.code == 2
    assert says in result.err
