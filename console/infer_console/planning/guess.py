"""Which of the models and GPUs that the planner knows a name stands for: servers call them as people do."""

import re
from collections.abc import Iterable

from infer_engine.planner import ALIASES, GPUS, MODELS


def guess_model(served: str, kv_bytes_per_token: int | None = None) -> str | None:
    """Of ``meta-llama/Llama-3.1-70B-Instruct`` the 70B; None where none fits. Of a family's name alone, such
    as ``smollm2``, the one whose KV is of that size in 16 bits or in another type."""
    name = served.replace("\\", "/").rsplit("/", 1)[-1].lower()
    # The shapes that are only a size, such as 70b, are nobody's in particular.
    found = name if name in MODELS else _longest(name, [each for each in (*MODELS, *ALIASES) if "-" in each])
    if found is None and kv_bytes_per_token is not None:
        sizes = [kv_bytes_per_token * 2, kv_bytes_per_token, kv_bytes_per_token / 2]
        family = [each for each in MODELS if each.startswith(name + "-")]
        fits = [each for each in family if MODELS[each].kv_bytes_per_token in sizes]
        return fits[0] if len(fits) == 1 else None
    return ALIASES.get(found, found) if found is not None else None


def guess_gpu(device: str) -> tuple[str, int] | None:
    """Of ``2 × NVIDIA H100 80GB HBM3`` the H100, two of them; None where none fits."""
    times = re.match(r"(\d{1,3}) × ", device)
    name = re.sub(r"[ _]+", "-", device.lower()).replace("rtx-", "rtx")
    found = _longest(name, GPUS)
    if found == "a100" and "40gb" in name:
        found = "a100-40gb"
    return None if found is None else (found, int(times[1]) if times else 1)


def _longest(name: str, known: Iterable[str]) -> str | None:
    """The most exact one of those that are a whole part of it."""
    fits = [each for each in known if re.search(rf"(?<![a-z0-9.]){re.escape(each)}(?![a-z0-9])", name)]
    return max(fits, key=len) if fits else None
