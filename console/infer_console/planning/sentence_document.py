"""A sentence and its KV as a JSON document; units in the names, unknown is None."""

from typing import Any

from infer_console.planning.kv_grid import DecodeStep, KvGrid
from infer_console.planning.sentence import Sentence, Token


def sentence_document(sentence: Sentence, grid: KvGrid | None, why: str) -> dict[str, Any]:
    """``why`` there are no tokens, and so no grid."""
    return {
        "text": sentence.text,
        "words": list(sentence.words),
        "tokenizer": sentence.tokenizer,
        "tokens": None
        if grid is None
        else [_token(*each, grid) for each in enumerate(sentence.tokens or ())],
        "why_no_tokens": why or None,
        "kv": None if grid is None else _kv(grid),
        "decode": None if grid is None else [_step(grid.step(at + 1)) for at in range(grid.steps)],
    }


def _token(at: int, token: Token, grid: KvGrid) -> dict[str, Any]:
    block, slot = divmod(at, grid.block_size)
    return {"id": token.id, "text": token.text, "word": token.word, "block": block, "slot": slot}


def _kv(grid: KvGrid) -> dict[str, Any]:
    """Of the sentence alone, before the first decode step."""
    prompt = KvGrid(grid.deployment, grid.prompt, 0, grid.block_size)
    model = grid.deployment.model
    return {
        "layers": grid.layers,
        "bytes_per_token_and_layer": model.kv_bytes_per_token_and_layer,
        "bytes_per_token": model.kv_bytes_per_token,
        "bytes_per_layer": prompt.layer_bytes,
        "bytes": prompt.kv_bytes,
        "block_size": prompt.block_size,
        "blocks": prompt.blocks,
        "free_slots": prompt.free_slots,
        "held_bytes": prompt.held_bytes,
        "prefill_s": prompt.prefill_s,
    }


def _step(step: DecodeStep) -> dict[str, Any]:
    return {
        "step": step.number,
        "column": step.column,
        "block": step.block,
        "weight_read_bytes": step.weight_bytes,
        "weight_read_s": step.weights_s,
        "kv_read_bytes": step.kv_read_bytes,
        "kv_read_s": step.kv_s,
        "step_s": step.step_s,
    }
