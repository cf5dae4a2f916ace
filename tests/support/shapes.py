"""Architectures that exist only as shapes."""

from typing import Any

import torch
from infer_engine.model.architecture import Architecture

CPU = torch.device("cpu")


def make_architecture(**changes: Any) -> Architecture:
    """Two layers, small; ``changes`` are Architecture's own fields."""
    values: dict[str, Any] = {
        "name": "shapes",
        "layers": 2,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 16,
        "feed_forward": 32,
        "vocab_size": 50,
        "context_length": 1024,
        "rope_base": 1e4,
        "norm_epsilon": 1e-5,
        "tied": True,
        **changes,
    }
    return Architecture(**{"hidden": values["heads"] * values["head_dim"], **values})
