"""A collector that shows given pictures and records what it is asked. It is below the Picture seam: the UI
above it is the real one."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from infer_console.state.picture import Picture
from infer_engine.protocol import Command, CommandResult, Effect, Operation, Problem

Answer = CommandResult | Problem


class FakeCollector:
    """``show`` gives a new picture; ``answer`` may be replaced to refuse."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._wake: Callable[[], None] | None = None
        self.interest: tuple[str, ...] = ()
        self.streams: tuple[str, ...] = ()
        self.content = False
        self.listing = False
        self.demand = False
        self.timeline_of: str | None = None
        self.sentence: str | None = None
        self.audit_wanted = False
        self.content = False
        self.timeline_of: str | None = None
        self.commands: list[tuple[Command, str | None]] = []
        self.answer: Callable[[Command, str | None], Answer] = self._accept

    @property
    def picture(self) -> Picture:
        return self._picture

    @property
    def applied(self) -> list[tuple[Command, str | None]]:
        return [(command, target) for command, target in self.commands if not command.dry_run]

    def show(self, picture: Picture) -> None:
        self._picture = picture
        if self._wake is not None:
            self._wake()

    def on_picture(self, wake: Callable[[], None] | None) -> None:
        self._wake = wake

    def set_interest(self, replicas: Iterable[str], detail: Sequence[str] = ("roster", "blocks")) -> None:
        self.interest = tuple(replicas)

    def watch_streams(self, requests: Iterable[str], content: bool = False) -> None:
        self.streams, self.content = tuple(requests), content

    def list_requests(self, wanted: bool) -> None:
        self.listing = wanted

    def watch_demand(self, wanted: bool) -> None:
        self.demand = wanted

    def watch_timeline(self, request: str | None) -> None:
        self.timeline_of = request

    def watch_sentence(self, text: str | None) -> None:
        self.sentence = text

    def watch_audit(self, wanted: bool) -> None:
        self.audit_wanted = wanted

    def command(
        self, command: Command, target: str | None = None, version: str | None = None
    ) -> "Future[Answer]":
        self.commands.append((command, target))
        future: Future[Answer] = Future()
        future.set_result(self.answer(command, target))
        return future

    def _accept(self, command: Command, target: str | None) -> Answer:
        kind = type(command).__name__.lower()
        effect = Effect(summary=[f"the server says what {kind} of {target or 'the fleet'} will do"])
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        operation = Operation(
            id="op-7", kind=kind, target=target or "fleet", phase="running", started_at=time.time()
        )
        return CommandResult(operation=operation, effect=effect)
