"""The worked numbers of serving a 70B model, exact, and beside them the rounded ones that people quote."""

from dataclasses import replace

import pytest
from infer_engine.planner import (
    GPUS,
    MODELS,
    Deployment,
    PlanError,
    gpu_named,
    model_named,
    parse_deployment,
)

BIG = model_named("70b")
FOUR_H100 = parse_deployment("70b@4×h100")


def test_kv_bytes_of_a_token() -> None:
    assert BIG.kv_bytes_per_token_and_layer == 4_096
    assert BIG.kv_bytes_per_token == 327_680
    assert BIG.kv_bytes_per_token / 1024 == 320
    assert 7 * BIG.kv_bytes_per_token == 2_293_760
    assert 100_000 * BIG.kv_bytes_per_token == 32_768_000_000


def test_without_grouped_queries_it_would_be_eight_times_as_much_and_fp8_halves_it() -> None:
    assert BIG.without_gqa().kv_bytes_per_token == 2_621_440 == 8 * BIG.kv_bytes_per_token
    assert BIG.with_kv_bytes(1).kv_bytes_per_token == 163_840


def test_the_smaller_presets() -> None:
    assert model_named("8b").kv_bytes_per_token == 131_072
    default = model_named("smollm2-135m-instruct")
    assert default.kv_bytes_per_token == 23_040
    assert default.with_kv_bytes(4).kv_bytes_per_token == 46_080
    assert default.weight_bytes == 269_030_016


def test_memory_of_four_h100_under_a_70b_model() -> None:
    assert FOUR_H100.memory_bytes == 320_000_000_000
    assert BIG.weight_bytes == 140_000_000_000
    assert FOUR_H100.activation_bytes == 20_000_000_000
    assert FOUR_H100.kv_bytes == 160_000_000_000
    assert FOUR_H100.kv_tokens == 488_281
    assert FOUR_H100.kv_tokens == pytest.approx(500_000, rel=0.03)
    assert FOUR_H100.kv_blocks(16) == 30_517


def test_sequences_that_fit_and_the_number_to_plan_with() -> None:
    assert FOUR_H100.sequences(8_000) == 61
    assert (FOUR_H100.sequences(8_000, 0.6), FOUR_H100.sequences(8_000, 0.7)) == (36, 42)
    assert FOUR_H100.sequences(8_000, 0.65) == pytest.approx(40, abs=1)
    assert FOUR_H100.sequences(100_000) == 4


def test_decode_floor_of_the_weights_alone() -> None:
    assert FOUR_H100.bandwidth_bytes_per_s == pytest.approx(13.4e12)
    floor_s = FOUR_H100.decode_step_s(0, 0)
    assert floor_s == pytest.approx(0.0104, abs=0.0001)
    assert 1 / floor_s == pytest.approx(96, abs=0.5)


def test_sixty_sequences_at_8k_read_more_kv_than_weights() -> None:
    kv_bytes = 60 * 8_000 * BIG.kv_bytes_per_token
    assert kv_bytes == 157_286_400_000
    assert kv_bytes > BIG.weight_bytes
    assert FOUR_H100.decode_step_s(60, 8_000) == pytest.approx(0.022, abs=0.0005)
    assert FOUR_H100.step_s([(7_999, 1)] * 60) == FOUR_H100.decode_step_s(60, 8_000)


def test_an_h100_needs_a_batch_of_about_300_before_compute_binds() -> None:
    h100 = gpu_named("h100")
    assert h100.balance_flops_per_byte == pytest.approx(300, rel=0.02)
    one = Deployment(model=BIG, gpu=h100, gpus=4)
    # Without KV to read, batching is free as long as memory binds.
    assert one.decode_step_s(200, 0) == one.decode_step_s(1, 0)
    assert one.decode_step_s(400, 0) > one.decode_step_s(1, 0)


def test_prefill_is_linear_in_short_prompts_and_quadratic_in_long_ones() -> None:
    def ratio(tokens: int) -> float:
        return FOUR_H100.prefill_s(2 * tokens) / FOUR_H100.prefill_s(tokens)

    assert ratio(2_000) == pytest.approx(2.0, abs=0.05)
    assert ratio(1_000_000) == pytest.approx(4.0, abs=0.3)
    assert FOUR_H100.prefill_s(2_000) == pytest.approx(2 * 70e9 * 2_000 / (4 * 989e12), rel=0.05)


def test_chunks_cost_the_same_flops_as_the_prompt_whole() -> None:
    whole = BIG.flops(0, 4_096)
    assert sum(BIG.flops(start, 512) for start in range(0, 4_096, 512)) == pytest.approx(whole)


def test_a_short_prompt_takes_no_less_than_reading_the_weights() -> None:
    assert FOUR_H100.prefill_s(1) == pytest.approx(FOUR_H100.decode_step_s(1, 1))
    assert FOUR_H100.step_s([]) == 0.0


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(PlanError, match=r"80.0 GB of memory, 140.0 GB of weights"):
        _ = parse_deployment("70b@h100").kv_tokens


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(PlanError, match=r"'900b'.*70b, 8b"):
        model_named("900b")
    with pytest.raises(PlanError, match=r"'tpu'.*h100"):
        gpu_named("tpu")


@pytest.mark.parametrize("text", ["70b@4×h100", "70b@4xH100"])
def test_a_deployment_is_written_with_either_sign(text: str) -> None:
    assert parse_deployment(text) == Deployment(model=BIG, gpu=GPUS["h100"], gpus=4)


def test_one_gpu_needs_no_number_and_an_x_in_its_name_does_no_harm() -> None:
    assert parse_deployment("8b@l40s").gpus == 1
    assert parse_deployment("8b@2xrtx4090").gpu is GPUS["rtx4090"]
    assert parse_deployment("8b@rtx4090").gpu is GPUS["rtx4090"]
    assert str(parse_deployment("8b@mi300x")) == "8b@1×mi300x"


@pytest.mark.parametrize(
    "text", ["", "70b", "70b@", "70b@0×h100", "70b@-1×h100", "70b@1025×h100", "70b@two×h100"]
)
def test_what_is_no_deployment_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        parse_deployment(text)


def test_presets_are_named_as_they_are_filed() -> None:
    assert all(name == model.name for name, model in MODELS.items())
    assert all(name == gpu.name for name, gpu in GPUS.items())
    assert replace(BIG) == BIG


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-8b", 8_190_735_360),
        ("mistral-7b", 7_248_023_552),
        ("smollm2-1.7b", 1_711_376_384),
    ],
)
def test_shapes_give_the_parameters_that_are_published(name: str, parameters: int) -> None:
    assert model_named(name).parameters == parameters


def test_a_model_is_found_by_what_people_call_it() -> None:
    assert model_named("Llama-70B") is MODELS["llama-3.1-70b"]
    assert parse_deployment("llama-8b@2xL40S").device == "2×L40S"


def test_moving_kv_to_the_host_goes_over_every_gpus_own_link() -> None:
    assert FOUR_H100.swap_s(16) == pytest.approx(16 * 327_680 / (4 * 63e9))


def test_the_parts_of_prefill_grow_with_the_prompt_and_with_its_square() -> None:
    linear_s, quadratic_s = FOUR_H100.prefill_parts_s(8_000)
    # 2 × 70e9 FLOPs for each of 8,000 tokens; 4 × 80 layers × 64 heads × 128 for each of the
    # 8,000 × 8,001 / 2 pairs.
    assert linear_s == pytest.approx(1.12e15 / 3.956e15)
    assert quadratic_s == pytest.approx(4 * 80 * 64 * 128 * 32_004_000 / 3.956e15)
    assert linear_s + quadratic_s == pytest.approx(FOUR_H100.prefill_s(8_000))
    twice = FOUR_H100.prefill_parts_s(16_000)
    assert (twice[0] / linear_s, twice[1] / quadratic_s) == (
        pytest.approx(2),
        pytest.approx(4, rel=0.001),
    )


def test_the_batch_from_which_decode_computes_longer_than_it_reads() -> None:
    batch = FOUR_H100.compute_bound_from(0)
    assert batch == 296  # FLOP per byte: 989 / 3.35
    assert FOUR_H100.decode_step_s(batch - 1, 0) == FOUR_H100.decode_step_s(1, 0)
    assert FOUR_H100.decode_step_s(batch, 0) > FOUR_H100.decode_step_s(1, 0)


def test_with_kv_to_read_there_is_a_context_from_which_no_batch_is_large_enough() -> None:
    longest = FOUR_H100.memory_bound_context()
    assert longest == pytest.approx(1_488, abs=1)
    assert FOUR_H100.compute_bound_from(int(longest) + 2) is None
    batch = FOUR_H100.compute_bound_from(500)
    assert batch is not None
    reading = (BIG.weight_bytes + batch * 500 * BIG.kv_bytes_per_token) / FOUR_H100.bandwidth_bytes_per_s
    assert FOUR_H100.decode_step_s(batch, 500) >= reading
    assert FOUR_H100.decode_step_s(batch - 2, 500) < batch * BIG.flops(500, 1) / FOUR_H100.flops_per_s


def test_how_many_gpus_a_model_needs() -> None:
    assert FOUR_H100.gpus_needed == 2
    assert parse_deployment("70b@2×h100").kv_bytes == 10_000_000_000
    small = parse_deployment("70b@4×l4")
    assert small.gpus_needed == 7
    with pytest.raises(PlanError):
        _ = parse_deployment("70b@6×l4").kv_bytes
    assert parse_deployment("70b@7×l4").kv_bytes > 0


def test_with_experts_a_token_computes_with_those_it_meets() -> None:
    sparse = replace(BIG, active_parameters=7_000_000_000)
    assert sparse.flops_of(1, 0) == 14e9
    assert sparse.weight_bytes == BIG.weight_bytes
