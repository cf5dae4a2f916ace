"""Models from their ``config.json``: counted as published, refused by the name of what is missing."""

from typing import Any

import pytest
from infer_engine.planner import ConfigShape, PlanError, model_named, shape_of_config

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
MIXTRAL: dict[str, Any] = {
    **LLAMA_8B,
    "model_type": "mixtral",
    "vocab_size": 32_000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN3_30B: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "mlp_only_layers": [],
    "decoder_sparse_step": 1,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": False,
}


def of(config: object) -> ConfigShape:
    return shape_of_config(config, "config.json", "mine")


def test_a_preset_and_its_file_are_one() -> None:
    shape, notes = of(LLAMA_8B)
    preset = model_named("llama-3.1-8b")
    assert (shape.parameters, shape.kv_bytes_per_token) == (preset.parameters, preset.kv_bytes_per_token)
    assert (shape.weight_bytes, shape.context_length) == (preset.weight_bytes, 131_072)
    assert notes == ()


def test_experts_are_all_stored_and_some_of_them_met() -> None:
    mixtral, notes = of(MIXTRAL)
    assert (mixtral.parameters, mixtral.active_parameters) == (46_702_792_704, 12_879_925_248)
    assert len(notes) == 1
    assert notes[0].startswith("8 experts, 2 for each token")
    qwen = of(QWEN3_30B).shape
    assert qwen.parameters == 30_532_122_624
    assert qwen.active_parameters == pytest.approx(3.35e9, rel=0.01)
    assert qwen.kv_bytes_per_token == 2 * 48 * 4 * 128 * 2


def test_names_of_older_models_are_read_and_their_size_is_an_estimate() -> None:
    gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
    shape, notes = of({**gpt2, "n_inner": None, "vocab_size": 50_257})
    assert shape.parameters == pytest.approx(124_439_808, rel=0.01)
    assert shape.kv_bytes_per_token == 2 * 12 * 768 * 2
    assert "estimated" in notes[0]


def test_precision_is_as_published() -> None:
    assert of({**LLAMA_8B, "torch_dtype": "float32"}).shape.kv_bytes_per_element == 4
    fp8 = of({**LLAMA_8B, "quantization_config": {"quant_method": "fp8"}})
    assert (fp8.shape.weight_bytes_per_parameter, fp8.shape.kv_bytes_per_element) == (1, 2)
    awq = of({**LLAMA_8B, "quantization_config": {"quant_method": "awq", "bits": 4}})
    assert awq.shape.weight_bytes == awq.shape.parameters // 2
    assert "4 bits" in awq.notes[0]
    assert "does not tell" in of({**LLAMA_8B, "quantization_config": {}}).notes[0]


def test_what_is_not_counted_is_said() -> None:
    assert "windows of 4096" in of({**LLAMA_8B, "sliding_window": 4096}).notes[0]
    assert of({**LLAMA_8B, "sliding_window": 4096, "use_sliding_window": False}).notes == ()
    seeing = of({"model_type": "llava", "text_config": LLAMA_8B})
    assert seeing.shape.parameters == 8_030_261_248
    assert "text_config" in seeing.notes[0]


@pytest.mark.parametrize("name", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(PlanError, match=rf"^config.json: {name} is missing"):
        of({key: value for key, value in LLAMA_8B.items() if key != name})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"hidden_size": "4096"}, r"hidden_size: '4096' was given, allowed is a whole number"),
        ({"num_hidden_layers": 0}, r"num_hidden_layers: '0' was given"),
        ({"num_hidden_layers": True}, r"num_hidden_layers: 'True' was given"),
        ({"vocab_size": 10**12}, r"vocab_size: '1000000000000' was given"),
        ({"num_key_value_heads": 7}, r"num_key_value_heads: 7 was given, allowed is what divides"),
        ({"kv_lora_rank": 512}, r"kv_lora_rank: latent attention"),
        ({"is_encoder_decoder": True}, r"is_encoder_decoder"),
        ({"layer_types": ["full_attention", "linear_attention"]}, r"layer_types has 'linear_attention'"),
        ({"num_experts": 8}, r"num_experts_per_tok is missing"),
    ],
)
def test_what_the_arithmetic_does_not_hold_for_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        of({**LLAMA_8B, **changed})


@pytest.mark.parametrize("config", [None, [], "llama", 7])
def test_only_an_object_is_a_config(config: object) -> None:
    with pytest.raises(PlanError, match="a JSON object is wanted"):
        of(config)
