"""A fleet whose generations say what a test tells them to: for HTTP tests that want no model's opinion."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from infer_engine.fleet.feed import Feed
from infer_engine.fleet.generation import Generation, GenerationSpec, Refusal
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.measures import Measures
from infer_engine.fleet.timelines import Timelines
from infer_engine.protocol import Fleet, Replica, RequestRow, Status, Totals


@dataclass(frozen=True)
class Cancelled:
    id: str
    reason: str
    code: str | None


class NoUpstreams:
    """Its capacity."""

    def context_length(self) -> int | None:
        """No upstream tells one."""
        return None


@dataclass
class ScriptedFleet:
    """Stands in for ``infer_engine.fleet.fleet.Fleet`` as far as the gateway uses it."""

    refuse_with: Refusal | None = None
    replicas: list[Replica] = field(default_factory=lambda: [Replica(id="r0", state="ready", health="idle")])
    generations: list[Generation] = field(default_factory=list)
    cancelled: list[Cancelled] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.feed = Feed()
        self.capacity = NoUpstreams()
        self.measures = Measures(["r0"], 0.0)
        self.timelines = Timelines(Ledger(self.feed, self.now))

    def forget(self) -> None:
        """As new."""
        self.refuse_with = None
        self.replicas = [Replica(id="r0", state="ready", health="idle")]
        self.generations.clear()
        self.cancelled.clear()

    @property
    def ready(self) -> bool:
        return any(replica.state == "ready" for replica in self.replicas)

    def status(self) -> Status:
        return Status(
            fleet=Fleet(name="scripted", model="tiny"),
            replicas=self.replicas,
            totals=Totals(replicas=len(self.replicas), ready=int(self.ready)),
        )

    def on_finish(self, listener: Callable[[Generation], None]) -> None:
        """Nothing here ever tells it."""

    def now(self) -> float:
        return 0.0

    def held_rows(self) -> list[RequestRow]:
        return []

    def submit(self, spec: GenerationSpec) -> Generation:
        if self.refuse_with is not None:
            raise self.refuse_with
        generation = Generation(id=f"req-{len(self.generations)}", spec=spec, arrived_s=0.0, replica="r0")
        self.generations.append(generation)
        return generation

    def submit_choices(self, specs: Sequence[GenerationSpec]) -> list[Generation]:
        return [self.submit(spec) for spec in specs]

    def cancel(self, request_id: str, **asked: Any) -> None:
        generation = next(each for each in self.generations if each.id == request_id)
        if generation.finished:
            return
        self.cancelled.append(Cancelled(request_id, asked["reason"], asked.get("code")))
        generation.error_code = asked.get("code")
        generation.finish_reason = asked["reason"]
        generation.wake()


def say(generation: Generation, tokens: list[int], finish: Any = None, **ending: Any) -> None:
    """Emit ``tokens``, and end with ``finish`` (and ``error``, ``error_code``) when given."""
    for token in tokens:
        generation.append(token, 0.0)
    if finish is not None:
        generation.error, generation.error_code = ending.get("error"), ending.get("error_code")
        generation.finish_reason = finish
    generation.wake()
