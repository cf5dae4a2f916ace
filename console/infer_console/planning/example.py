"""The worked example that people quote, rounded, and what it is exactly."""

from dataclasses import dataclass
from functools import cache

from infer_engine.planner import parse_deployment

#: Llama's 70B in 16 bits on four H100, sequences of 8,000 tokens.
EXAMPLE = "70b@4×h100"
CONTEXT = 8_000
SEQUENCES = 60


@dataclass(frozen=True, slots=True)
class Quoted:
    what: str
    #: As it is quoted.
    rounded: str
    exact: float
    unit: str
    #: Where the example gives a range.
    exact_to: float | None = None


@cache
def worked_example() -> tuple[Quoted, ...]:
    one = parse_deployment(EXAMPLE)
    model, gpu = one.model, one.gpu
    ceiling_s, step_s = one.decode_step_s(0, 0), one.decode_step_s(SEQUENCES, CONTEXT)
    token_bytes = model.kv_bytes_per_token
    return (
        Quoted("KV/token and layer", "4,096 B", model.kv_bytes_per_token_and_layer, "B"),
        Quoted("KV/token", "320 KB", token_bytes, "B"),
        Quoted("KV of 7 tokens", "2.24 MB", 7 * token_bytes, "B"),
        Quoted("KV of 100k tokens", "32 GB", 100_000 * token_bytes / 1e9, "GB"),
        Quoted("KV/token, no GQA", "2.6 MB", model.without_gqa().kv_bytes_per_token, "B"),
        Quoted("times, no GQA", "8", model.without_gqa().kv_bytes_per_token / token_bytes, "×"),
        Quoted("KV/token, fp8", "half", model.with_kv_bytes(1).kv_bytes_per_token, "B"),
        Quoted("memory", "320 GB", one.memory_bytes / 1e9, "GB"),
        Quoted("weights", "140 GB", model.weight_bytes / 1e9, "GB"),
        Quoted("activations", "20 GB", one.activation_bytes / 1e9, "GB"),
        Quoted("for KV", "160 GB", one.kv_bytes / 1e9, "GB"),
        Quoted("tokens that fit", "500,000", one.kv_tokens, "tok"),
        Quoted("sequences of 8k", "60", one.sequences(CONTEXT), "seq."),
        Quoted("of them at 60–70 %", "40", one.sequences(CONTEXT, 0.6), "seq.", one.sequences(CONTEXT, 0.7)),
        Quoted("step, weights alone", "10.4 ms", ceiling_s * 1e3, "ms"),
        Quoted("that is per sequence", "96 tok/s", 1 / ceiling_s, "tok/s"),
        Quoted("KV that 60 read", "157 GB", SEQUENCES * CONTEXT * token_bytes / 1e9, "GB"),
        Quoted("their step", "22 ms", step_s * 1e3, "ms"),
        Quoted("FLOP per byte, H100", "300", gpu.balance_flops_per_byte, "FLOP/B"),
    )
