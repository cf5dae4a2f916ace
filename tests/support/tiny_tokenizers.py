"""Tiny tokenizers of the kinds that supported models come with, as the files of a Hugging Face directory, and
what a GGUF file says of the same."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
from support.tiny_model import CHAT_TEMPLATE, MERGES, tiny_vocabulary
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_WORDS = QWEN_WORDS.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
#: More than the merges need: a whole word that no merges lead to.
UNREACHABLE = "Ġtonight"
DIGIT_MERGES = ["1 2", "12 3", "3 4", "' s", "Ġ '"]

QWEN_TEMPLATE = (
    "{%- if tools %}{{- 'tools!' }}{%- endif %}\n"
    "{%- for message in messages %}\n"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
)
LLAMA3_TEMPLATE = (
    "{%- if not tools is defined %}{%- set tools = none %}{%- endif %}\n"
    "{%- if tools is not none %}{{- 'tools!' }}{%- endif %}\n"
    "{{- bos_token }}\n"
    "{%- for message in messages %}\n"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}\n"
    "{{- message['content'] | trim + '<|eot_id|>' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
LLAMA2_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)

TEXTS = [
    "in the ring",
    "  two  spaces\n\n\tand tabs ",
    "I'm sure they'll see it's DON'T",
    "call 1234567 at 3.14159, tonight",
    "e\u0301 \r\n\r\n a\u00a0b",
    "\U0001f469\u200d\U0001f680 語 ▁",
    "a <tool_call> b</think>c",
    " ",
]
CHATS = [
    [{"role": "user", "content": "in the ring, tonight?"}],
    [
        {"role": "user", "content": " hello 123\n"},
        {"role": "assistant", "content": "there <think>on</think>"},
        {"role": "user", "content": "it's e\u0301"},
    ],
]


@dataclass(frozen=True, kw_only=True)
class TinyTokenizer:
    """``pre`` and ``kind`` are GGUF's names; ``special`` and ``words`` come after the vocabulary."""

    name: str
    kind: str
    pre: str = ""
    special: list[str]
    words: list[str] = field(default_factory=list)
    template: str
    bos: str | None
    eos: str
    adds_bos: bool

    @property
    def size(self) -> int:
        return len(self.vocabulary()) + len(self.special) + len(self.words)

    def merges(self) -> list[str]:
        return PIECE_MERGES if self.kind == "llama" else [*MERGES, *DIGIT_MERGES]

    def vocabulary(self) -> list[str]:
        if self.kind == "llama":
            letters = ["▁", *map(chr, range(33, 127))]
            merged = [merge.replace(" ", "") for merge in PIECE_MERGES]
            return ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *merged]
        return [
            *tiny_vocabulary()[3:],
            *(merge.replace(" ", "") for merge in DIGIT_MERGES),
            UNREACHABLE,
        ]

    def ids(self) -> dict[str, int]:
        return {token: id for id, token in enumerate([*self.vocabulary(), *self.special, *self.words])}


PIECE_MERGES = ["▁ t", "h e", "▁t he", "i n", "e r", "▁ a", "o n", "l l", "in g", "▁ in", "▁ r", "▁r ing"]
QWEN = TinyTokenizer(
    name="qwen",
    kind="gpt2",
    pre="qwen2",
    special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    words=["<tool_call>", "<think>", "</think>"],
    template=QWEN_TEMPLATE,
    bos=None,
    eos="<|im_end|>",
    adds_bos=False,
)
LLAMA3 = TinyTokenizer(
    name="llama3",
    kind="gpt2",
    pre="llama-bpe",
    special=["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    template=LLAMA3_TEMPLATE,
    bos="<|begin_of_text|>",
    eos="<|eot_id|>",
    adds_bos=True,
)
LLAMA2 = TinyTokenizer(
    name="llama2",
    kind="llama",
    special=[],
    template=LLAMA2_TEMPLATE,
    bos="<s>",
    eos="</s>",
    adds_bos=True,
)
SMOLLM = TinyTokenizer(
    name="smollm",
    kind="gpt2",
    pre="smollm",
    special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    template=CHAT_TEMPLATE,
    bos="<|im_start|>",
    eos="<|im_end|>",
    adds_bos=False,
)
#: As ``LLAMA2``, but a space comes before the beginning of a text only, as newer exports have it.
LLAMA2_FIRST = TinyTokenizer(**{**LLAMA2.__dict__, "name": "llama2-first"})
TOKENIZERS = [QWEN, LLAMA3, LLAMA2, SMOLLM, LLAMA2_FIRST]


def write_tokenizer(directory: Path, kind: TinyTokenizer) -> None:
    """Write ``tokenizer.json`` and what lies beside it. Where the chat template is kept differs by kind."""
    _build(kind).save(str(directory / "tokenizer.json"))
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": kind.eos}
    if kind.bos:
        config["bos_token"] = {"content": kind.bos, "__type": "AddedToken"} if kind is SMOLLM else kind.bos
    if kind is LLAMA3:
        (directory / "chat_template.jinja").write_text(kind.template)
        config["chat_template"] = "the file comes first"
    elif kind is QWEN:
        config["chat_template"] = [
            {"name": "default", "template": kind.template},
            {"name": "tool_use", "template": "x"},
        ]
    else:
        config["chat_template"] = kind.template
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def _build(kind: TinyTokenizer) -> Tokenizer:
    ids = {token: id for id, token in enumerate(kind.vocabulary())}
    merges = [(left, right) for left, right in (merge.split(" ") for merge in kind.merges())]
    if kind.kind == "llama":
        built = Tokenizer(
            models.BPE(vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
        )
        _as_pieces(built, first_only=kind.name == "llama2-first")
    else:
        built = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=kind is LLAMA3))
        _as_bytes(built, kind)
    special = ["<unk>", "<s>", "</s>"] if kind.kind == "llama" else kind.special
    built.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    built.add_tokens([AddedToken(word, special=False, normalized=False) for word in kind.words])
    if kind.adds_bos and kind.bos:
        begin = processors.TemplateProcessing(
            single=f"{kind.bos}:0 $A:0",
            pair=f"{kind.bos}:0 $A:0 $B:1",
            special_tokens=[(kind.bos, kind.ids()[kind.bos])],
        )
        built.post_processor = (
            begin
            if kind.kind == "llama"
            else processors.Sequence([processors.ByteLevel(trim_offsets=False), begin])
        )
    return built


def _as_pieces(built: Tokenizer, *, first_only: bool) -> None:
    if first_only:
        built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    built.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )


def _as_bytes(built: Tokenizer, kind: TinyTokenizer) -> None:
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind is SMOLLM)
    words = {"qwen": QWEN_WORDS, "llama3": LLAMA3_WORDS}.get(kind.name)
    first = (
        pre_tokenizers.Split(Regex(words), "isolated")
        if words
        else pre_tokenizers.Digits(individual_digits=True)
    )
    built.pre_tokenizer = pre_tokenizers.Sequence([first, gpt2])
    built.decoder = decoders.ByteLevel()
    if kind is QWEN:
        built.normalizer = normalizers.NFC()


def add_to_gguf(writer: gguf.GGUFWriter, kind: TinyTokenizer) -> None:
    """What the usual converter writes of the same tokenizer."""
    vocabulary, types = kind.vocabulary(), gguf.TokenType
    writer.add_tokenizer_model(kind.kind)
    writer.add_token_list([*vocabulary, *kind.special, *kind.words])
    token_types = [int(types.NORMAL)] * len(vocabulary)
    if kind.kind == "llama":
        token_types[:3] = [int(types.UNKNOWN), int(types.CONTROL), int(types.CONTROL)]
        token_types[3:259] = [int(types.BYTE)] * 256
        ranks = {merge.replace(" ", ""): rank for rank, merge in enumerate(PIECE_MERGES)}
        writer.add_token_scores([-float(ranks.get(token, 10_000)) for token in vocabulary])
    else:
        writer.add_tokenizer_pre(kind.pre)
        writer.add_token_merges(kind.merges())
    token_types += [int(types.CONTROL)] * len(kind.special) + [int(types.USER_DEFINED)] * len(kind.words)
    writer.add_token_types(token_types)
    if kind.bos:
        writer.add_bos_token_id(kind.ids()[kind.bos])
    writer.add_eos_token_id(kind.ids()[kind.eos])
    writer.add_chat_template(kind.template)
