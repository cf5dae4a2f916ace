"""Fields that other servers know and this one does not build: accepted only where they ask for nothing."""

from collections.abc import Callable, Mapping
from typing import Any

from infer_engine.gateway.errors import invalid, shown
from infer_engine.gateway.fields import Fields

Harmless = Callable[[Any], bool]


def _empty(value: Any) -> bool:
    return value in (None, "", [], {})


def _one_of(*allowed: Any) -> Harmless:
    return lambda value: not isinstance(value, bool) and value in allowed


def _off(*names: str) -> dict[str, tuple[Harmless, str]]:
    return dict.fromkeys(names, (lambda value: value is False, "false"))


def _nothing(*names: str) -> dict[str, tuple[Harmless, str]]:
    return dict.fromkeys(names, (_empty, "empty"))


def _neutral(value: float, *names: str) -> dict[str, tuple[Harmless, str]]:
    return dict.fromkeys(names, (_one_of(value), f"{value:g}"))


#: What would change the answer, in the words of OpenAI, vLLM, SGLang and llama.cpp.
_UNBUILT: Mapping[str, tuple[Harmless, str]] = {
    **_off("echo", "use_beam_search", "continue_final_message", "early_stopping", "no_stop_trim"),
    **_off("return_token_ids", "return_tokens_as_token_ids", "return_hidden_states", "grammar_lazy"),
    **_nothing("suffix", "tools", "functions", "allowed_token_ids", "bad_words", "logits_processors"),
    **_nothing("chat_template", "chat_template_kwargs", "documents", "audio", "web_search_options"),
    **_nothing("prediction", "prompt_embeds", "input_ids", "input_embeds", "image_data", "lora", "lora_path"),
    **_nothing("stop_regex", "custom_logit_processor", "custom_params", "session_params", "cache_salt"),
    **_nothing("samplers", "grammar_triggers", "mm_processor_kwargs", "kv_transfer_params"),
    **_nothing("structural_tag", "logprob_token_ids", "reasoning_effort", "verbosity"),
    **_neutral(0, "priority", "mirostat", "dry_multiplier", "xtc_probability", "dynatemp_range", "n_probs"),
    **_neutral(0, "min_keep"),
    **_neutral(1, "length_penalty", "typical_p", "tfs_z", "repeat_penalty"),
    "tool_choice": (_one_of("none", "auto"), "none or auto"),
    "function_call": (_one_of("none", "auto"), "none or auto"),
    "top_n_sigma": (_one_of(-1), "-1"),
    "prompt_logprobs": (_one_of(), "null"),
    "truncate_prompt_tokens": (_one_of(), "null"),
    "thinking_token_budget": (_one_of(), "null"),
    "add_generation_prompt": (lambda value: value is True, "true"),
    "skip_special_tokens": (lambda value: value is True, "true"),
    "spaces_between_special_tokens": (lambda value: value is True, "true"),
    "modalities": (lambda value: value == ["text"], '["text"]'),
}
#: What has another name here.
_RENAMED: Mapping[str, str] = {
    "n_predict": "max_tokens",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "json_schema": "response_format or structured_outputs.json",
    "regex": "structured_outputs.regex",
    "ebnf": "structured_outputs.regex or .json",
    "grammar": "structured_outputs.regex or .json",
    "guided_json": "structured_outputs.json",
    "guided_json_object": "structured_outputs.json_object",
    "guided_regex": "structured_outputs.regex",
    "guided_choice": "structured_outputs.choice",
    "guided_grammar": "structured_outputs.regex or .json",
    "guided_whitespace_pattern": "structured_outputs without it",
    "guided_decoding_backend": "structured_outputs without it",
}


def refuse_unbuilt(fields: Fields) -> None:
    """Raise ApiError (400) naming the first of them."""
    for former, now in _RENAMED.items():
        if fields.raw(former) is not None:
            raise invalid(former, f"{former} is not supported; use {now}", code="unsupported_value")
    for field, (harmless, allowed) in _UNBUILT.items():
        value = fields.raw(field)
        if value is not None and not harmless(value):
            raise invalid(
                field,
                f"{field} {shown(value)} is not supported; the only value allowed is {allowed}",
                code="unsupported_value",
            )
