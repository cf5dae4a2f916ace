"""What the UI needs of the collector."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol

from infer_engine.protocol import Command, CommandResult, Problem

from infer_console.state.picture import Picture

Answer = CommandResult | Problem


class CollectorPort(Protocol):
    """Every method returns at once; the callback of ``on_picture`` comes from another thread."""

    @property
    def picture(self) -> Picture: ...

    def on_picture(self, wake: Callable[[], None] | None) -> None: ...

    def set_interest(self, replicas: Iterable[str], detail: Sequence[str] = ("roster", "blocks")) -> None: ...

    def watch_streams(self, requests: Iterable[str], content: bool = False) -> None: ...

    def list_requests(self, wanted: bool) -> None: ...

    def watch_timeline(self, request: str | None) -> None: ...

    def watch_audit(self, wanted: bool) -> None: ...

    def command(
        self, command: Command, target: str | None = None, version: str | None = None
    ) -> "Future[Answer]": ...
