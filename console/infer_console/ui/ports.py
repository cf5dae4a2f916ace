"""What the UI needs of the collector."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

from infer_engine.protocol import Command, CommandResult, Problem

from infer_console.past.export import Exported
from infer_console.past.timeline import Timeline
from infer_console.state.picture import Picture

Answer = CommandResult | Problem


class PastPort(Protocol):
    """What the UI needs of what was. Every method returns at once."""

    @property
    def timeline(self) -> Timeline: ...

    def fetch_past(self, at: float) -> None:
        """Have the timeline get that moment from wherever it is kept."""
        ...

    def audit_until(self, at: float | None) -> None:
        """Have the audit, where it is looked at, be that of a moment; None: of now."""
        ...

    @property
    def fetching(self) -> str:
        """How that goes; empty when there is nothing to say."""
        ...

    def export(
        self, from_at: float, to_at: float, path: Path, *, redact: bool = True
    ) -> "Future[Exported]": ...


class CollectorPort(Protocol):
    """Every method returns at once; the callback of ``on_picture`` comes from another thread."""

    @property
    def picture(self) -> Picture: ...

    def on_picture(self, wake: Callable[[], None] | None) -> None: ...

    def set_interest(self, replicas: Iterable[str], detail: Sequence[str] = ("roster", "blocks")) -> None: ...

    def watch_streams(self, requests: Iterable[str], content: bool = False) -> None: ...

    def list_requests(self, wanted: bool) -> None: ...

    def watch_demand(self, wanted: bool) -> None: ...

    def watch_timeline(self, request: str | None) -> None: ...

    def watch_sentence(self, text: str | None) -> None: ...

    def watch_audit(self, wanted: bool) -> None: ...

    def command(
        self, command: Command, target: str | None = None, version: str | None = None
    ) -> "Future[Answer]": ...
