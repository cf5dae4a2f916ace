"""Where the peers live: a virtual environment each, beside the default model as a Hugging Face directory.

All of it can be deleted at any time; ``make peers`` makes it again.
"""

import json
import os
from pathlib import Path

import platformdirs

#: Raise when what ``build`` makes changes: older environments are then made anew.
RECIPE = 1
NAMES = ("transformers", "vllm", "llamacpp")
#: Consoles of others: nothing of them is measured.
CONSOLES = ("vllm-htop",)


def peers_dir() -> Path:
    """``INFER_CONSOLE_PEERS``, or a folder in the user's cache; it may not exist yet."""
    moved = os.environ.get("INFER_CONSOLE_PEERS")
    return Path(moved) if moved else platformdirs.user_cache_path("infer-console") / "peers"


def python_of(peer: str) -> Path:
    return peers_dir() / peer / "bin" / "python"


def model_dir() -> Path:
    """The default model, its dequantised weights as fp32 safetensors: what transformers and vLLM load."""
    return peers_dir() / "model"


def stamp_of(name: str) -> Path:
    """Written last, so that a folder with one is whole. ``model`` has one too."""
    return peers_dir() / name / "built.json"


def versions_of(name: str) -> dict[str, str] | None:
    """Package versions of a peer that is built by today's recipe; None where it is not."""
    try:
        stamp = json.loads(stamp_of(name).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(stamp, dict) or stamp.get("recipe") != RECIPE:
        return None
    return {str(package): str(version) for package, version in stamp["versions"].items()}


def why_missing(peer: str) -> str | None:
    """Why this peer cannot be measured here; None where it can."""
    if versions_of(peer) is None:
        return f"{peer} is not built here (make peers)"
    if peer in ("transformers", "vllm") and versions_of("model") is None:
        return "the model was not exported for it (make peers)"
    return None
