"""The answer in words and numbers: the same for the screen and for the command line."""

from dataclasses import dataclass

from infer_console.planning.answer import Answer, Decode
from infer_console.planning.example import Quoted


@dataclass(frozen=True, slots=True)
class Fact:
    """``note`` is what the value is made of or what it means; text of a model's file may be in it."""

    label: str
    value: str
    note: str = ""
    warn: bool = False


def gb(count: float) -> str:
    return f"{count / 1e9:,.1f} GB"


def duration(value_s: float) -> str:
    """``10.45 ms``, ``305 ms``, ``12.3 s``."""
    if value_s >= 1:
        return f"{value_s:,.1f} s" if value_s < 1e6 else f"{value_s:.3g} s"
    ms = value_s * 1e3
    return f"{ms:.0f} ms" if ms >= 99.95 else f"{ms:.1f} ms" if ms >= 9.95 else f"{ms:.3g} ms"


def money(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.2f}" if value >= 0.995 else f"{value:.3g}"


def rate(per_s: float | None) -> str:
    return "–" if per_s is None else f"{per_s:,.1f}"


def memory_facts(answer: Answer) -> list[Fact]:
    question = answer.question
    one, model = question.deployment, question.deployment.model
    layers = f"2 × {model.layers} layers × {model.kv_heads} KV heads × {model.head_dim}"
    facts = [
        Fact(
            "KV per token",
            f"{model.kv_bytes_per_token:,} B",
            f"{layers} × {model.kv_bytes_per_element:g} B",
        ),
        Fact(
            "without GQA",
            f"{answer.without_gqa_kv_bytes_per_token:,} B",
            f"{answer.gqa_factor:.3g}× as much, with {model.heads} heads",
        ),
        Fact("KV per sequence", gb(question.context * model.kv_bytes_per_token), f"{question.context:,} tok"),
        Fact("memory", gb(one.memory_bytes), f"{one.gpus} × {gb(one.gpu.memory_bytes)}"),
        Fact("− weights", gb(model.weight_bytes), _parameters(answer)),
        Fact("− workspace", gb(one.activation_bytes), f"{one.activation_share * 100:.3g}% of the memory"),
    ]
    return [*facts, _budget(answer)]


def _parameters(answer: Answer) -> str:
    model = answer.question.deployment.model
    text = f"{model.parameters / 1e9:,.4g}G × {model.weight_bytes_per_parameter:g} B"
    if model.active_parameters is not None:
        text += f", {model.active_parameters / 1e9:,.4g}G a token"
    return text


def _budget(answer: Answer) -> Fact:
    one = answer.question.deployment
    if answer.fits:
        return Fact("= for KV", gb(answer.kv_budget_bytes), f"{answer.kv_tokens:,} tok")
    needed = one.gpus_needed
    enough = f"from {needed} of these GPUs on" if needed is not None else "not on these GPUs"
    return Fact("= for KV", gb(answer.kv_budget_bytes), f"it does not fit: {enough}", warn=True)


def prefill_facts(answer: Answer) -> list[Fact]:
    prefill = answer.prefill
    read = duration(prefill.weights_read_s)
    return [
        Fact("prefill", duration(prefill.prefill_s), f"{prefill.tokens:,} tok, alone: the floor"),
        Fact("linear part", duration(prefill.linear_s), f"weights; reading them takes {read}"),
        Fact("quadratic part", duration(prefill.quadratic_s), "attention"),
    ]


def bound_facts(answer: Answer) -> list[Fact]:
    """From which batch on decode waits for FLOPs and no longer for memory."""
    context = answer.question.context
    without, with_kv = answer.compute_bound_from_without_kv, answer.compute_bound_from
    facts = [
        Fact(
            "memory-bound to",
            f"{without - 1:,} seq." if without is not None else "any batch",
            "without KV to read",
        )
    ]
    if with_kv is None:
        never = answer.memory_bound_context_tokens
        why = f", as from {never:,.0f} tok on" if never is not None else ""
        facts.append(Fact("with it", "any batch", f"at {context:,} tok{why}"))
    else:
        facts.append(Fact("with it", f"{with_kv - 1:,} seq.", f"at {context:,} tok of context"))
    return facts


def fill_words(decode: Decode, digits: int = 3) -> str:
    """``65% batch mark``."""
    if decode.used_ratio is None:
        return decode.fill
    percent = f"{decode.used_ratio * 100:.{digits}g}%"
    return percent if decode.fill == "full" else f"{percent} {decode.fill}"


def exact(quoted: Quoted) -> str:
    """``488,281 tok``, ``10.45 ms``, ``36–42 seq.``."""
    return f"{_exact(quoted.exact)}{f'–{_exact(quoted.exact_to)}' if quoted.exact_to else ''} {quoted.unit}"


def _exact(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.4g}"
