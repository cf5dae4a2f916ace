"""What an action asks of the operator, and how their words become values."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from infer_engine.durations import show_duration

#: A limit is a number that may be left as it is (empty) or lifted (``none``).
ParamKind = Literal["choice", "number", "limit", "duration", "amount", "text", "flag"]


@dataclass(frozen=True, slots=True)
class Amount:
    """Headroom as it was asked for: a share of the pool in percent, or blocks."""

    percent: float | None = None
    blocks: int | None = None


#: Durations are seconds; an optional parameter left out is None.
Value = str | float | bool | Amount | None
Values = Mapping[str, Value]
#: What an operator gave: text, or a box that is ticked or not.
Given = Mapping[str, str | bool | None]

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", re.ASCII)
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(%|b)?", re.ASCII)
NEVER = "none"
_DURATIONS = ("30s", "5m", "1h")


class ParamError(ValueError):
    """A value was refused. ``str()`` names the parameter, what was given and what is allowed."""

    def __init__(self, name: str, given: object, allowed: str) -> None:
        shown = "nothing" if given == "" else repr(given)
        super().__init__(f"{name}: {shown} was given, allowed is {allowed}")
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One field of a dialog, one option of the command line. Bounds are those that the server enforces; for a
    duration they are seconds, for text the most characters."""

    name: str
    kind: ParamKind
    label: str
    default: str | bool | None = None
    choices: tuple[str, ...] = ()
    lowest: float = 0.0
    highest: float = math.inf
    #: May be left out; a duration may then also be ``none``.
    optional: bool = False
    #: By how much the arrow keys change a number; None: along round numbers.
    step: float | None = None
    hint: str = ""
    #: What each choice means, where that has to be said.
    choice_hints: Mapping[str, str] = field(default_factory=dict[str, str])
    #: Of a number: without a fraction.
    whole: bool = False
    #: Of a limit: in percent, with or without its sign.
    percent: bool = False

    def parse(self, given: str | bool | None) -> Value:
        """Raise ParamError for what does not fit; what is missing takes the default."""
        if given is None or given == "":
            given = self.default
        if self.kind == "flag":
            return bool(given)
        if given is None or given is True or given is False:
            if self.optional or self.kind == "text":
                return "" if self.kind == "text" else None
            raise ParamError(self.name, "" if given is None else given, self.allowed())
        return self._parse_text(given.strip())

    def allowed(self) -> str:
        """What may be given, in words."""
        match self.kind:
            case "choice":
                return " or ".join(self.choices)
            case "duration":
                bounds = f"a duration like {self._examples()}, from {show_duration(self.lowest)}"
                bounds += f" to {show_duration(self.highest)}" if math.isfinite(self.highest) else " on"
                return f"{bounds}, or {NEVER}" if self.optional else bounds
            case "limit" if self.percent:
                return f"a percentage like 40%, {NEVER} to lift it, or nothing"
            case "limit":
                return f"a number from {self.lowest:g} to {self.highest:g}, {NEVER} to lift it, or nothing"
            case "amount":
                return "a percentage of the pool like 10%, or blocks like 50b"
            case "text":
                return f"at most {self.highest:g} printable characters"
            case _:
                kind = "a whole number" if self.whole else "a number"
                return f"{kind} from {self.lowest:g} to {self.highest:.16g}"

    def _parse_text(self, given: str) -> Value:
        match self.kind:
            case "choice":
                if given not in self.choices:
                    raise ParamError(self.name, given, self.allowed())
                return given
            case "text":
                if len(given) > self.highest or not given.isprintable():
                    raise ParamError(self.name, given[:40], self.allowed())
                return given
            case "amount":
                return self._parse_amount(given)
            case "limit" if given == NEVER:
                return NEVER
            case "limit" if self.percent:
                return self._percent(given)
            case "duration":
                if self.optional and given == NEVER:
                    return None
                return self._bounded(given, parse_duration(given))
            case _:
                return self._bounded(given, _number(given))

    def _examples(self) -> str:
        """Durations that would be taken."""
        fit = [each for each in _DURATIONS if self.lowest <= (parse_duration(each) or 0.0) <= self.highest]
        return " or ".join(part for part in (", ".join(fit[:-1]), *fit[-1:]) if part) or show_duration(
            self.highest
        )

    def _percent(self, given: str) -> float:
        """A bare number under 1 is refused: the control API writes 40 % as 0.4, and a limit a hundred times
        as tight as it was meant would be taken for a good one."""
        number = given.removesuffix("%").rstrip()
        value = self._bounded(given, _number(number))
        if number == given and 0.0 < value < 1.0:
            meant = f"{100 * value:.4g}% or {value:.4g}%, whichever is meant"
            raise ParamError(self.name, given, f"a percentage: {meant}")
        return value

    def _parse_amount(self, given: str) -> Amount:
        found = _AMOUNT.fullmatch(given)
        if found is None:
            raise ParamError(self.name, given, self.allowed())
        number, unit = found.groups()
        if unit == "b":
            if "." in number:
                raise ParamError(self.name, given, "a whole number of blocks")
            return Amount(blocks=int(number[:12]))
        if float(number) > 100:
            raise ParamError(self.name, given, "0% to 100%")
        return Amount(percent=float(number))

    def _bounded(self, given: str, value: float | None) -> float:
        if value is None or not self.lowest <= value <= self.highest or (self.whole and value % 1):
            raise ParamError(self.name, given, self.allowed())
        return value


def parse_duration(text: str) -> float | None:
    """Seconds of ``30``, ``30s``, ``1.5s``, ``5m``, ``1h``, ``1h30m``; None when it is no duration."""
    found = _DURATION.fullmatch(text.strip().lower())
    if not text.strip() or found is None or not any(found.groups()):
        return None
    hours, minutes, seconds = found.groups()
    return int(hours or 0) * 3600.0 + int(minutes or 0) * 60.0 + float(seconds or 0)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
