"""The answer as a JSON document; units in the names, unknown is None."""

from typing import Any

from infer_console.planning.answer import Answer, Decode
from infer_console.planning.example import EXAMPLE, Quoted, worked_example


def plan_document(answer: Answer) -> dict[str, Any]:
    question, one = answer.question, answer.question.deployment
    model, gpu, prefill = one.model, one.gpu, answer.prefill
    return {
        "version": 1,
        "model": {
            "name": model.name,
            "layers": model.layers,
            "heads": model.heads,
            "kv_heads": model.kv_heads,
            "head_dim": model.head_dim,
            "parameters": model.parameters,
            "active_parameters": model.active_parameters,
            "weight_bytes_per_parameter": model.weight_bytes_per_parameter,
            "kv_bytes_per_element": model.kv_bytes_per_element,
        },
        "gpu": {
            "name": gpu.name,
            "count": one.gpus,
            "memory_bytes": gpu.memory_bytes,
            "bandwidth_bytes_per_s": gpu.bandwidth_bytes_per_s,
            "flops_per_s": gpu.flops_per_s,
        },
        "context_tokens": question.context,
        "fits": answer.fits,
        "gpus_needed": one.gpus_needed,
        "memory": {
            "total_bytes": one.memory_bytes,
            "weight_bytes": model.weight_bytes,
            "workspace_bytes": one.activation_bytes,
            "kv_budget_bytes": answer.kv_budget_bytes,
        },
        "kv": {
            "bytes_per_token": model.kv_bytes_per_token,
            "bytes_per_token_and_layer": model.kv_bytes_per_token_and_layer,
            "bytes_per_token_without_gqa": answer.without_gqa_kv_bytes_per_token,
            "gqa_factor": answer.gqa_factor,
            "bytes_per_sequence": question.context * model.kv_bytes_per_token,
            "tokens": answer.kv_tokens,
        },
        "prefill": {
            "tokens": prefill.tokens,
            "prefill_s": prefill.prefill_s,
            "linear_s": prefill.linear_s,
            "quadratic_s": prefill.quadratic_s,
            "weights_read_s": prefill.weights_read_s,
        },
        "decode": [_decode(each) for each in answer.decode],
        "compute_bound_from_sequences": {
            "without_kv": answer.compute_bound_from_without_kv,
            "with_kv": answer.compute_bound_from,
            "never_from_context_tokens": answer.memory_bound_context_tokens,
        },
        "price_per_gpu_hour": question.price_per_gpu_hour,
        "notes": list(question.notes),
        "worked_example": {
            "deployment": EXAMPLE,
            "figures": [_quoted(each) for each in worked_example()],
        },
    }


def _decode(each: Decode) -> dict[str, Any]:
    return {
        "fill": each.fill,
        "used_ratio": each.used_ratio,
        "sequences": each.sequences,
        "kv_read_bytes": each.kv_read_bytes,
        "step_s": each.step_s,
        "tokens_per_s_per_sequence": each.tokens_per_s_per_sequence,
        "tokens_per_s": each.tokens_per_s,
        "price_per_million_tokens": each.price_per_million_tokens,
    }


def _quoted(each: Quoted) -> dict[str, Any]:
    return {
        "what": each.what,
        "rounded": each.rounded,
        "exact": each.exact,
        "exact_to": each.exact_to,
        "unit": each.unit,
    }
