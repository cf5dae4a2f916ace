"""Several fleets in one console: a collector each, of which one is shown. Only that one is asked for details;
of the others it is told how many critical alarms they have."""

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

from infer_engine.protocol import Command

from infer_console.past.export import Exported
from infer_console.past.timeline import Timeline
from infer_console.state.picture import Picture
from infer_console.ui.ports import Answer, CollectorPort, PastPort
from infer_console.view.look import OtherFleet

MOST_FLEETS = 8
MAX_NAME = 24
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._/-]+")


class FleetPort(CollectorPort, PastPort, Protocol):
    """One fleet: what is, and what was."""


class Fleets:
    """Stands for the fleet that is shown, wherever one collector is wanted."""

    def __init__(self, members: Sequence[FleetPort]) -> None:
        """Raise ValueError for none, and for more than eight."""
        if not 1 <= len(members) <= MOST_FLEETS:
            raise ValueError(f"{len(members)} fleets were given, allowed are 1 to {MOST_FLEETS}")
        self._members = tuple(members)
        self._at = 0
        self._wake: Callable[[], None] | None = None
        self._told: dict[int, tuple[int, str]] = {}

    @property
    def shown(self) -> FleetPort:
        return self._members[self._at]

    @property
    def names(self) -> tuple[str, ...]:
        """As the fleets call themselves, else by their URL; each once."""
        names: list[str] = []
        for member in self._members:
            picture = member.picture
            said = picture.fleet.name if picture.fleet is not None else ""
            name = _NOT_IN_NAMES.sub("-", said or picture.link.url.rpartition("://")[2])[-MAX_NAME:].strip(
                "-/"
            )
            while not name or name in names:
                name += f"~{len(names) + 1}"
            names.append(name)
        return tuple(names)

    @property
    def name(self) -> str:
        return self.names[self._at]

    @property
    def pictures(self) -> dict[str, Picture]:
        """Of all of them, by name."""
        return {name: member.picture for name, member in zip(self.names, self._members, strict=True)}

    def others(self) -> tuple[OtherFleet, ...]:
        """Those that are not shown, in the order in which they were given."""
        return tuple(
            OtherFleet(name, *_state(member.picture))
            for place, (name, member) in enumerate(zip(self.names, self._members, strict=True))
            if place != self._at
        )

    def show(self, name: str) -> None:
        """Another one; raise ValueError for a name that is none. Nothing more is asked of the one before."""
        at = self.names.index(name)
        if at == self._at:
            return
        before = self.shown
        before.set_interest((), ())
        before.watch_streams(())
        before.list_requests(False)
        before.watch_demand(False)
        before.watch_timeline(None)
        before.watch_sentence(None)
        before.watch_audit(False)
        before.audit_until(None)
        self._at = at

    # --- the fleet that is shown, as one collector

    @property
    def picture(self) -> Picture:
        return self.shown.picture

    def on_picture(self, wake: Callable[[], None] | None) -> None:
        self._wake = wake
        for place, member in enumerate(self._members):
            member.on_picture(None if wake is None else self._waker(place))

    def _waker(self, place: int) -> Callable[[], None]:
        """Of one that is not shown only the news of its alarms and its link are worth a frame. Each is called
        on its own collector's thread, and writes its own entry."""

        def woken() -> None:
            wake, told = self._wake, _state(self._members[place].picture)
            if wake is not None and (place == self._at or self._told.get(place) != told):
                self._told[place] = told
                wake()

        return woken

    def set_interest(self, replicas: Iterable[str], detail: Sequence[str] = ("roster", "blocks")) -> None:
        self.shown.set_interest(replicas, detail)

    def watch_streams(self, requests: Iterable[str], content: bool = False) -> None:
        self.shown.watch_streams(requests, content)

    def list_requests(self, wanted: bool) -> None:
        self.shown.list_requests(wanted)

    def watch_demand(self, wanted: bool) -> None:
        self.shown.watch_demand(wanted)

    def watch_timeline(self, request: str | None) -> None:
        self.shown.watch_timeline(request)

    def watch_sentence(self, text: str | None) -> None:
        self.shown.watch_sentence(text)

    def watch_audit(self, wanted: bool) -> None:
        self.shown.watch_audit(wanted)

    def command(
        self, command: Command, target: str | None = None, version: str | None = None
    ) -> "Future[Answer]":
        return self.shown.command(command, target, version)

    # --- and what was

    @property
    def timeline(self) -> Timeline:
        return self.shown.timeline

    def fetch_past(self, at: float) -> None:
        self.shown.fetch_past(at)

    def audit_until(self, at: float | None) -> None:
        self.shown.audit_until(at)

    @property
    def fetching(self) -> str:
        return self.shown.fetching

    def export(self, from_at: float, to_at: float, path: Path, *, redact: bool = True) -> "Future[Exported]":
        return self.shown.export(from_at, to_at, path, redact=redact)


def _state(picture: Picture) -> tuple[int, str]:
    """How many critical alarms, and how the link is."""
    return sum(alarm.severity == "critical" for alarm in picture.alarms), picture.link.state
