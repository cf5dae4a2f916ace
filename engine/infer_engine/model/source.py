"""What a model is read from: one GGUF file, or a Hugging Face directory. No torch."""

from pathlib import Path

from infer_engine.model.gguf_file import GgufFile, read_gguf
from infer_engine.model.hf_directory import HfDirectory, read_hf_directory

ModelSource = GgufFile | HfDirectory


def open_source(path: Path) -> ModelSource:
    """Read the headers of the model at ``path``, which ``store.resolve`` found. Raises ModelUnavailable when
    it cannot be read, ModelUnsupported when it is damaged or no model."""
    return read_hf_directory(path) if path.is_dir() else read_gguf(path)
