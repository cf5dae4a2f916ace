"""The hyper-parameters of a model, as its files state them, checked before anything is allocated by them.
No torch."""

from infer_engine.model.gguf_architecture import read_gguf_architecture
from infer_engine.model.gguf_file import GgufFile
from infer_engine.model.hf_architecture import read_hf_architecture
from infer_engine.model.hf_directory import HfDirectory
from infer_engine.model.hyper_parameters import Architecture

__all__ = ["Architecture", "read_architecture"]


def read_architecture(source: GgufFile | HfDirectory) -> Architecture:
    """Raises ModelUnsupported for anything the forward pass would compute wrongly."""
    if isinstance(source, GgufFile):
        return read_gguf_architecture(source)
    return read_hf_architecture(source)
