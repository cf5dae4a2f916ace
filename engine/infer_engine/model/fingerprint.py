"""Tells whether two machines have the same model: its shape, its tokenizer, and samples of its weights. No
torch, and a second or two for whatever size."""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from infer_engine.model.architecture import read_architecture
from infer_engine.model.gguf_file import GgufFile
from infer_engine.model.gguf_vocabulary import read_gguf_vocabulary
from infer_engine.model.hf_vocabulary import read_hf_vocabulary
from infer_engine.model.source import ModelSource

#: Places of each weights file that are looked at, spread evenly over it, and how much of each.
SAMPLES = 32
SAMPLE_BYTES = 64 << 10


def fingerprint(source: ModelSource) -> dict[str, str]:
    """By part, in words or as a digest. Raises ModelError, OSError."""
    shape = {name: str(value) for name, value in asdict(read_architecture(source)).items() if name != "name"}
    return {**shape, "tokenizer": _tokenizer(source), "weights": _weights(source)}


def difference(ours: dict[str, str], theirs: dict[str, str]) -> str | None:
    """The first part in which ``theirs`` is another model, in words of ours but for values; None where they
    are the same."""
    for part in ours:
        if ours[part] != theirs.get(part):
            if part in ("tokenizer", "weights"):
                return f"its {part} differ" if part == "weights" else "its tokenizer differs"
            return f"its {part} is {theirs.get(part, 'not told')!a} instead of {ours[part]!a}"[:200]
    return None


def _tokenizer(source: ModelSource) -> str:
    table = read_gguf_vocabulary(source) if isinstance(source, GgufFile) else read_hf_vocabulary(source)
    digest = hashlib.sha256()
    for token in table.token_bytes:
        digest.update(len(token).to_bytes(4, "little") + token)
    parts = (sorted(table.special_ids.items()), sorted(table.word_ids.items()), sorted(table.stop_ids))
    digest.update(repr((*parts, table.prefix_ids, table.chat_template)).encode(errors="replace"))
    digest.update(table.encoder.to_str().encode(errors="replace"))
    return digest.hexdigest()


def _weights(source: ModelSource) -> str:
    digest = hashlib.sha256()
    for path in sorted(_files(source), key=lambda path: path.name):
        size = path.stat().st_size
        digest.update(f"{size} ".encode())
        with path.open("rb") as file:
            for number in range(SAMPLES):
                file.seek(number * max(0, size - SAMPLE_BYTES) // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _files(source: ModelSource) -> Iterable[Path]:
    if isinstance(source, GgufFile):
        return [source.path]
    return {tensor.file for tensor in source.tensors.values()}
