"""The doctor: looks at pictures once a second, remembers two minutes, and says what causes what it sees.

No clock and no input of its own: a live console, the flight recorder and a recording give it the same
pictures and get the same findings. Time is the pictures' own.
"""

import copy
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from infer_console.diagnosis.case import (
    FLEET_KEYS,
    REPLICA_KEYS,
    Case,
    MarkChange,
    fleet_numbers,
    replica_numbers,
)
from infer_console.diagnosis.rules.registry import ORDER, RULE, RULES
from infer_console.diagnosis.track import Track
from infer_console.state.finding import Finding
from infer_console.state.picture import Picture

#: Pictures that come sooner after the last look are not looked at.
PERIOD_S = 0.95
#: After a longer pause nothing is known of what was before.
LONGEST_GAP_S = 15.0
#: What was not found for less than this is still shown: measurements cross their thresholds to and fro.
HOLD_S = 5.0
#: Findings of one rule that are told one by one.
MOST_TOLD = 3


@dataclass(slots=True)
class _Seen:
    first_at: float
    last_at: float
    finding: Finding


@dataclass(slots=True)
class Doctor:
    _looked_at: float | None = None
    _fleet: Track = field(default_factory=lambda: Track(FLEET_KEYS))
    _tracks: dict[str, Track] = field(default_factory=dict[str, Track])
    _limits: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    _marks: dict[str, MarkChange] = field(default_factory=dict[str, MarkChange])
    #: By the finding's id.
    _seen: dict[str, _Seen] = field(default_factory=dict[str, _Seen])
    _shown: tuple[Finding, ...] = ()

    def __deepcopy__(self, memo: dict[int, object]) -> "Doctor":
        """Findings are not changed, so both have the same."""
        return Doctor(
            self._looked_at,
            copy.deepcopy(self._fleet, memo),
            {name: copy.deepcopy(track, memo) for name, track in self._tracks.items()},
            dict(self._limits),
            dict(self._marks),
            {id: dataclasses.replace(seen) for id, seen in self._seen.items()},
            self._shown,
        )

    def look(self, picture: Picture) -> tuple[Finding, ...]:
        """What is found now, causes first. While there is no live view, what was found last."""
        if picture.link.state != "live" or picture.totals is None:
            return self._shown
        if self._looked_at is not None:
            passed_s = picture.at - self._looked_at
            if 0 <= passed_s < PERIOD_S:
                return self._shown
            if not 0 <= passed_s <= LONGEST_GAP_S:
                self._forget()
        self._looked_at = picture.at
        self._remember(picture)
        case = Case(picture, self._fleet, self._tracks, self._marks)
        self._keep((finding for rule in RULES for finding in rule.look(case)), picture.at)
        found = _together(self._aged(picture.at))
        self._shown = tuple(_without_action(found) if case.watched else found)
        return self._shown

    def _forget(self) -> None:
        self._fleet = Track(FLEET_KEYS)
        self._tracks.clear()
        self._limits.clear()
        self._marks.clear()
        self._seen.clear()

    def _remember(self, picture: Picture) -> None:
        self._fleet.add(picture.at, fleet_numbers(picture))
        for gone in self._tracks.keys() - picture.replicas.keys():
            del self._tracks[gone]
            self._limits.pop(gone, None)
            self._marks.pop(gone, None)
        for name, shown in picture.replicas.items():
            track = self._tracks.get(name)
            if track is None:
                track = self._tracks[name] = Track(REPLICA_KEYS)
            track.add(picture.at, replica_numbers(shown.status))
            kv = shown.status.kv
            if kv.admit_limit is None or kv.total is None:
                continue
            total, limit = self._limits.get(name, (kv.total, kv.admit_limit))
            if total == kv.total and limit != kv.admit_limit:
                self._marks[name] = MarkChange(picture.at, limit, kv.admit_limit)
            self._limits[name] = kv.total, kv.admit_limit

    def _keep(self, found: Iterable[Finding], at: float) -> None:
        for finding in found:
            seen = self._seen.get(finding.id)
            if seen is None:
                self._seen[finding.id] = _Seen(at, at, finding)
            else:
                seen.last_at, seen.finding = at, finding
        self._seen = {id: seen for id, seen in self._seen.items() if at - seen.last_at < HOLD_S}

    def _aged(self, at: float) -> Iterable[Finding]:
        """In the rules' order, without what others account for."""
        standing = sorted(self._seen.values(), key=lambda seen: ORDER[seen.finding.rule])
        causes = _Causes()
        for seen in standing:
            causes.add(seen.finding)
        explained: dict[str, set[str]] = {}
        for seen in standing:
            cause = causes.of(seen.finding)
            if cause is not None:
                explained.setdefault(cause.id, set()).add(seen.finding.rule)
        for seen in standing:
            finding = seen.finding
            if causes.of(finding) is None:
                since_s = max(at - seen.first_at, finding.since_s or 0.0)
                accounts = sorted(explained.get(finding.id, ()))
                yield msgspec.structs.replace(finding, since_s=since_s, explains=accounts)


def _without_action(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Of a server that can only be watched: what nobody can do from here is not proposed."""
    for finding in findings:
        yield msgspec.structs.replace(finding, action=None)


class _Causes:
    """Which finding accounts for which, the first by the rules' order; there may be thousands of them."""

    def __init__(self) -> None:
        self._anywhere: dict[str, Finding] = {}
        self._on: dict[tuple[str, str], Finding] = {}
        self._first: dict[str, Finding] = {}

    def add(self, cause: Finding) -> None:
        rule = RULE[cause.rule]
        for effect in rule.explains:
            self._first.setdefault(effect, cause)
            if rule.spreads or cause.replica is None:
                self._anywhere.setdefault(effect, cause)
            else:
                self._on.setdefault((effect, cause.replica), cause)

    def of(self, effect: Finding) -> Finding | None:
        if effect.replica is None:
            return self._first.get(effect.rule)
        return self._on.get((effect.rule, effect.replica)) or self._anywhere.get(effect.rule)


def _together(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Where a rule speaks of many replicas it is told once, on the first of them."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    for same in by_rule.values():
        if len(same) <= MOST_TOLD:
            yield from same
            continue
        others = [finding.replica for finding in same[1:] if finding.replica is not None]
        named = ", ".join(others[:MOST_TOLD])
        more = f" and {len(others) - MOST_TOLD} more" if len(others) > MOST_TOLD else ""
        yield msgspec.structs.replace(
            same[0], replicas=others, words=f"{same[0].words}; likewise {named}{more}"
        )
