"""The planner's answer against numbers computed by hand."""

import pytest
from infer_console.actions.params import ParamError
from infer_console.planning.answer import Answer, Fill, answer
from infer_console.planning.document import plan_document
from infer_console.planning.example import worked_example
from infer_console.planning.facts import bound_facts, duration, exact, memory_facts, money
from infer_console.planning.question import ask
from infer_engine.planner import PlanError


def answered(**given: str) -> Answer:
    return answer(ask(given, None))


def test_memory_of_the_worked_example() -> None:
    found = answered()
    assert found.kv_budget_bytes == 320_000_000_000 - 140_000_000_000 - 20_000_000_000
    assert (found.kv_tokens, found.fits) == (488_281, True)
    assert (found.without_gqa_kv_bytes_per_token, found.gqa_factor) == (2_621_440, 8)


@pytest.mark.parametrize(("fill", "sequences"), [("full", 61), ("admit mark", 54), ("batch mark", 39)])
def test_sequences_at_either_mark_and_in_all(fill: Fill, sequences: int) -> None:
    decode = answered().decode_at(fill)
    assert decode is not None
    assert decode.sequences == sequences
    assert decode.kv_read_bytes == sequences * 8_000 * 327_680
    read_bytes = 140e9 + decode.kv_read_bytes
    assert decode.step_s == pytest.approx(read_bytes / 13.4e12)
    assert decode.tokens_per_s == pytest.approx(sequences * 13.4e12 / read_bytes)


def test_the_ceiling_reads_no_kv() -> None:
    ceiling = answered().decode_at("weights alone")
    assert ceiling is not None
    assert ceiling.kv_read_bytes == 0
    assert ceiling.step_s == pytest.approx(0.010448, abs=1e-6)
    assert ceiling.tokens_per_s_per_sequence == pytest.approx(95.7, abs=0.05)


def test_prefill_in_its_two_parts() -> None:
    prefill = answered().prefill
    assert prefill.linear_s == pytest.approx(0.28311, abs=1e-5)
    assert prefill.quadratic_s == pytest.approx(0.02121, abs=1e-5)
    assert prefill.prefill_s == pytest.approx(prefill.linear_s + prefill.quadratic_s)
    short = answered(context="10").prefill
    assert short.prefill_s == pytest.approx(short.weights_read_s, rel=1e-3)


def test_price_is_per_generated_token_and_never_guessed() -> None:
    assert all(each.price_per_million_tokens is None for each in answered().decode)
    full = answered(price="2.5").decode_at("full")
    assert full is not None
    # 4 GPUs × 2.50 an hour, 2,726 tokens a second.
    assert full.price_per_million_tokens == pytest.approx(10 / 3600 / full.tokens_per_s * 1e6)
    assert full.price_per_million_tokens == pytest.approx(1.02, abs=0.005)


def test_marks_follow_the_headroom() -> None:
    found = answered(headroom="50", batch_headroom="100")
    sequences = {each.fill: each.sequences for each in found.decode}
    assert (sequences["admit mark"], sequences["batch mark"]) == (30, 0)
    nobody = found.decode_at("batch mark")
    assert nobody is not None
    assert (nobody.tokens_per_s_per_sequence, nobody.tokens_per_s) == (None, 0)


def test_precision_halves() -> None:
    found = answered(weights="fp8", kv="fp8")
    model = found.question.deployment.model
    assert (model.weight_bytes, model.kv_bytes_per_token) == (70_000_000_000, 163_840)
    assert found.kv_tokens == 230_000_000_000 // 163_840


def test_what_does_not_fit_is_an_answer_too() -> None:
    found = answered(gpu="l4")
    assert (found.fits, found.decode, found.kv_tokens) == (False, (), 0)
    assert found.kv_budget_bytes == 96_000_000_000 - 140_000_000_000 - 6_000_000_000
    budget = memory_facts(found)[-1]
    assert (budget.warn, budget.note) == (True, "it does not fit: from 7 of these GPUs on")
    assert answered(context="1000000").decode == ()


def test_a_gpu_by_its_figures() -> None:
    found = answered(gpu="other", memory_gb="80", bandwidth_tb_per_s="3.35", tflops="989")
    assert found.kv_tokens == answered().kv_tokens
    assert found.decode[0].step_s == answered().decode[0].step_s
    with pytest.raises(PlanError, match="needs all of memory GB, memory TB/s and TFLOPS"):
        answered(gpu="other", memory_gb="80")
    assert answered(memory_gb="96").question.deployment.memory_bytes == 384_000_000_000


def test_what_does_not_fit_its_field_is_refused_with_what_does() -> None:
    with pytest.raises(ParamError, match=r"gpus: '0' was given, allowed is a whole number from 1 to 1024"):
        answered(gpus="0")
    with pytest.raises(ParamError, match=r"context: '1.5' was given"):
        answered(context="1.5")
    with pytest.raises(ParamError, match="model: 'gpt-9' was given, allowed is 70b or"):
        answered(model="gpt-9")
    with pytest.raises(PlanError, match="a path is wanted"):
        answered(model="config.json")


def test_from_which_batch_on_decode_computes() -> None:
    found = answered(context="500")
    assert found.compute_bound_from_without_kv == 296
    assert found.compute_bound_from == found.question.deployment.compute_bound_from(500)
    assert bound_facts(found)[0].value == "295 seq."
    long = bound_facts(answered())[1]
    assert (long.value, long.note) == ("any batch", "at 8,000 tok, as from 1,488 tok on")


def test_a_longer_context_than_the_model_was_made_for_is_said() -> None:
    assert answered(context="131072").question.notes == ()
    assert "131,072 tokens of context at most" in answered(context="131073").question.notes[0]


def test_the_worked_example_has_its_quoted_figure_beside_each_exact_one() -> None:
    figures = {each.what: (each.rounded, exact(each)) for each in worked_example()}
    assert figures["KV/token and layer"] == ("4,096 B", "4,096 B")
    assert figures["KV/token"] == ("320 KB", "327,680 B")
    assert figures["KV of 7 tokens"] == ("2.24 MB", "2,293,760 B")
    assert figures["KV of 100k tokens"] == ("32 GB", "32.77 GB")
    assert figures["KV/token, no GQA"] == ("2.6 MB", "2,621,440 B")
    assert figures["times, no GQA"] == ("8", "8 ×")
    assert figures["KV/token, fp8"] == ("half", "163,840 B")
    assert figures["memory"] == ("320 GB", "320 GB")
    assert figures["weights"] == ("140 GB", "140 GB")
    assert figures["activations"] == ("20 GB", "20 GB")
    assert figures["for KV"] == ("160 GB", "160 GB")
    assert figures["tokens that fit"] == ("500,000", "488,281 tok")
    assert figures["sequences of 8k"] == ("60", "61 seq.")
    assert figures["of them at 60–70 %"] == ("40", "36–42 seq.")
    assert figures["step, weights alone"] == ("10.4 ms", "10.45 ms")
    assert figures["that is per sequence"] == ("96 tok/s", "95.71 tok/s")
    assert figures["KV that 60 read"] == ("157 GB", "157.3 GB")
    assert figures["their step"] == ("22 ms", "22.19 ms")
    assert figures["FLOP per byte, H100"] == ("300", "295.2 FLOP/B")


def test_the_document_has_every_figure_with_its_unit() -> None:
    document = plan_document(answered(price="2"))
    assert document["version"] == 1
    assert document["memory"]["kv_budget_bytes"] == 160_000_000_000
    assert document["decode"][0]["step_s"] == pytest.approx(0.010448, abs=1e-6)
    assert document["decode"][-1]["price_per_million_tokens"] == pytest.approx(0.815, abs=0.001)
    assert document["compute_bound_from_sequences"]["with_kv"] is None


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (0.010448, "10.4 ms"),
        (0.0234, "23.4 ms"),
        (0.3043, "304 ms"),
        (2.31, "2.3 s"),
        (0.017, "17.0 ms"),
        (0.00697, "6.97 ms"),
    ],
)
def test_durations(value_s: float, text: str) -> None:
    assert duration(value_s) == text


def test_money() -> None:
    assert [money(None), money(0.4762), money(29.558), money(1234.5)] == ["–", "0.476", "29.56", "1,234.50"]
