"""Figures beside what was promised: over it they carry a mark."""

from infer_engine.protocol import Slo

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.row import Role

OVER = "▲"


def targets(picture: Picture) -> Slo:
    """What was promised; nothing where nobody said."""
    slo = picture.fleet.slo if picture.fleet is not None else None
    return slo if slo is not None else Slo()


def is_over(value: float | None, target: float | None) -> bool:
    """Unknown figures and unknown targets are over nothing."""
    return value is not None and target is not None and value > target


def marked(text: SafeText, value: float | None, target: float | None) -> SafeText:
    return safe(f"{text}{OVER}") if is_over(value, target) else text


def in_column(text: SafeText, value: float | None, target: float | None) -> SafeText:
    """As ``marked``, with a blank in the mark's place so that digits stay below each other."""
    if target is None:
        return text
    return marked(text, value, target) if is_over(value, target) else safe(f"{text} ")


def role_of(value: float | None, target: float | None, otherwise: Role = "text") -> Role:
    return "crit" if is_over(value, target) else otherwise
