"""A finding's numbers in words: each with its name and unit."""

from infer_console.state.finding import Evidence, Finding
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import UNKNOWN, age, count, milliseconds, percent

#: Below a second, times of steps and tokens are read in milliseconds.
_SHORT_S = 1.0


def evidence_words(finding: Finding) -> list[SafeText]:
    """``oldest wait 47s``, ``lack blocks share 82%``."""
    return [safe(f"{_name(name)} {_value(name, value)}") for name, value in finding.evidence.items()]


def _name(name: str) -> str:
    for ending in ("_s", "_c", "_ratio", "_blocks"):
        if name.endswith(ending) and not name.startswith("kv_blocks"):
            name = name.removesuffix(ending)
            return name.replace("_", " ") + (" blocks" if ending == "_blocks" else "")
    return name.replace("_", " ")


def _value(name: str, value: Evidence) -> SafeText:
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return safe(value, 64)
    if name.endswith(("_ratio", "_share")) or "_share_of_" in name or name == "fit":
        return safe(f"{percent(value)}%")
    if name.endswith("_s") and not name.endswith("per_s"):
        return safe(f"{milliseconds(value)} ms") if value < _SHORT_S else age(value)
    if name.endswith("_c"):
        return safe(f"{value:.0f} °C")
    if value != round(value) and abs(value) < 100:
        return safe(f"{value:.1f}")
    return count(value)
