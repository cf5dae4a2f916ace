"""Writes a real, tiny, randomly initialised Llama as a GGUF file, for tests that need a model but not its
quality.

It has everything the real one has (byte-level BPE vocabulary and merges, special tokens, ChatML template,
tied embeddings, grouped-query attention), so it loads through exactly the same code, in milliseconds.
"""

from pathlib import Path
from typing import Literal

import gguf
import numpy as np
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

TensorType = Literal["F32", "F16", "Q8_0", "Q4_1"]

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
#: Id of ``<|im_end|>``: the end-of-sequence token, as in the real model.
EOS_ID = 2
MERGES = ["Ġ t", "h e", "Ġt he", "i n", "e r", "Ġ a", "o n", "l l", "in g", "Ġ ing"]
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_vocabulary() -> list[str]:
    """Special tokens, one token for each of the 256 bytes, and one for each merge."""
    alphabet: list[str] = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*SPECIAL_TOKENS, *alphabet, *(merge.replace(" ", "") for merge in MERGES)]


def write_tiny_gguf(
    path: Path,
    *,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    feed_forward: int = 128,
    context_length: int = 2048,
    tensor_type: TensorType = "F32",
    tied: bool = True,
    chat_template: str | None = CHAT_TEMPLATE,
    architecture: str = "llama",
    name: str = "tiny",
    seed: int = 0,
) -> Path:
    """Write the model to ``path`` and return it. The same arguments give the same file.

    Its greedy output is varied, mostly printable ASCII, and practically never a special token, so a request
    runs to its ``max_tokens``. The F32 file is about 0.6 MB.
    """
    vocabulary = tiny_vocabulary()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_block_count(layers)
    writer.add_context_length(context_length)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary))
    _add_tokenizer(writer, vocabulary, chat_template)
    rng = np.random.default_rng(seed)
    for tensor_name, values in _tensors(rng, vocabulary, layers, hidden, heads, kv_heads, feed_forward, tied):
        quantized = values.ndim > 1 and tensor_type != "F32"
        kind = gguf.GGMLQuantizationType[tensor_type] if quantized else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor_name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, vocabulary: list[str], chat_template: str | None) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary)
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    writer.add_token_types([control if token in SPECIAL_TOKENS else normal for token in vocabulary])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(EOS_ID)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    if chat_template is not None:
        writer.add_chat_template(chat_template)


def _tensors(
    rng: np.random.Generator,
    vocabulary: list[str],
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    feed_forward: int,
    tied: bool,
) -> list[tuple[str, NDArray[np.float32]]]:
    head_dim = hidden // heads

    def random(rows: int, columns: int, gain: float = 1.0) -> NDArray[np.float32]:
        return (rng.standard_normal((rows, columns)) * gain / columns**0.5).astype(np.float32)

    def ones() -> NDArray[np.float32]:
        return np.ones(hidden, np.float32)

    tensors = [("token_embd.weight", random(len(vocabulary), hidden) * _loudness(vocabulary)[:, None])]
    for layer in range(layers):
        block = f"blk.{layer}"
        tensors += [
            (f"{block}.attn_norm.weight", ones()),
            # A gain above 1 makes attention look at some tokens more than at others.
            (f"{block}.attn_q.weight", random(heads * head_dim, hidden, 2.0)),
            (f"{block}.attn_k.weight", random(kv_heads * head_dim, hidden, 2.0)),
            (f"{block}.attn_v.weight", random(kv_heads * head_dim, hidden, 2.0)),
            (f"{block}.attn_output.weight", random(hidden, heads * head_dim, 2.0)),
            (f"{block}.ffn_norm.weight", ones()),
            (f"{block}.ffn_gate.weight", random(feed_forward, hidden, 2.0)),
            (f"{block}.ffn_up.weight", random(feed_forward, hidden, 2.0)),
            (f"{block}.ffn_down.weight", random(hidden, feed_forward, 2.0)),
        ]
    tensors.append(("output_norm.weight", ones()))
    if not tied:
        tensors.append(("output.weight", random(len(vocabulary), hidden) * _loudness(vocabulary)[:, None]))
    return tensors


def _loudness(vocabulary: list[str]) -> NDArray[np.float32]:
    """Row scale of the (tied) output matrix: printable ASCII is likely, other bytes are rare, specials almost
    never."""

    def of(token: str) -> float:
        if token in SPECIAL_TOKENS:
            return 0.01
        return 1.0 if all(33 <= ord(char) < 127 or char == "Ġ" for char in token) else 0.2

    return np.array([of(token) for token in vocabulary], np.float32)
