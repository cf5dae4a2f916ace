"""What is wanted, as a book that only accepted writes and the server's own, announced changes may change.

Each command is looked at in the moment in which it takes effect: the version that it names is the present
one, the specs become exactly what it asks for, and nothing else changes. Between two such moments, and
whenever somebody reads, everything is as the book has it. So the accepted writes, in the order of their
moments, are a linear history that explains every read.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

from infer_engine.control.mutation import Mutation
from infer_engine.control.operations import ENDED, Operations
from infer_engine.control.versions import REPLICAS, Versions
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.specs import Spec
from infer_engine.protocol import EVERYONE, TenantLimits
from simulation.fleet.disk import Disk
from simulation.fleet.wishes import Reverts, wished
from starlette.requests import Request

T = TypeVar("T")

TENANTS = ("red", "blue", EVERYONE)
#: A version and what is wanted in it; None of a tenant without limits of its own.
Page = tuple[str, Spec | None]


class Book:
    def __init__(self, fleet: Fleet, operations: Operations, versions: Versions, disk: Disk) -> None:
        self._fleet = fleet
        self._operations = operations
        self._versions = versions
        self._disk = disk
        self._pages: dict[str, Page] = {}
        #: Every version that there was, and what was wanted in it.
        self._history: dict[tuple[str, str], Spec | None] = {}
        #: What timed changes may put back, and those that were refused after they took effect.
        self.reverts = Reverts()
        self._scaled = False
        #: How often a command took effect under a key.
        self.applied: Counter[str] = Counter()
        self.accepted = 0

    def begin(self) -> None:
        self._pages = self._now()

    def pages(self) -> dict[str, Page]:
        """As they are now; everything is explained when this returns."""
        self.settle()
        return self._pages

    def read(self, target: str) -> tuple[str, Spec | None] | None:
        """What an operator sees of it; None when it is not there."""
        self.settle()
        if target == REPLICAS:
            return self._versions.version(REPLICAS) or "", None
        return self._pages.get(target)

    def resume(self, before: "Book", *, all_written: bool) -> None:
        """Of the next server: what the last one has written is what it begins with."""
        for target, (version, spec) in self._now().items():
            told = before._history.get((target, version), spec)
            assert told == spec, f"{target} {version} was {told} and is {spec} after the restart"
            old = before._pages.get(target)
            if all_written and old is not None and not target.startswith("replica:"):
                assert old[1] == spec, f"{target} was {old} before the restart, {version} {spec} after"
        self.reverts = before.reverts

    # --- commands ------------------------------------------------------------------------------------------

    def watching(self, mutation: Mutation[Any]) -> Callable[[Request, Any], Awaitable[Any]]:
        """The mutation's ``apply``, looked at in the moment in which it takes effect."""

        async def apply(request: Request, command: Any) -> Any:
            self.settle()
            before = dict(self._pages)
            spec = mutation.changes(request.path_params, command) if mutation.changes else None
            if mutation.needs_version and not command.dry_run and spec is not None:
                given, now = request.headers.get("if-match"), self._versions.version(spec)
                assert now is None or given in ("*", f'"{now}"'), (
                    f"{mutation.verb} was for {given}, {spec} is {now}"
                )
            effect: list[dict[str, Page]] = []

            def took_effect(error: BaseException | None) -> None:
                effect.append(self._effect(mutation.verb, request, command, before, error))

            result = await _with_a_look(mutation.apply(request, command), took_effect)
            if not command.dry_run and effect[0]:
                key = request.headers.get("idempotency-key", "")
                self.applied[key] += 1
                assert not key or self.applied[key] == 1, f"{mutation.verb} was done twice under {key}"
            return result

        return apply

    async def saved(self) -> None:
        """What an operator's answer waits for: all that was wanted is on the disk when it returns."""
        changes = max(int(version.rpartition("-")[2]) for version, _ in self._now().values())
        await self._fleet.specs.saved()
        on_disk = self._disk.written.changes if self._disk.written is not None else 0
        assert on_disk >= changes, f"change {changes} was to be on the disk, which has {on_disk}"
        self.accepted += 1

    def _effect(
        self, verb: str, request: Request, command: Any, before: dict[str, Page], error: BaseException | None
    ) -> dict[str, Page]:
        """What changed, which is what was asked for."""
        now = self._now()
        changed = {name: page for name, page in now.items() if before.get(name) != page}
        if error is not None or command.dry_run:
            assert not changed, f"{verb} was refused or dry ({error}) and changed {changed}"
            return {}
        self._scaled = self._scaled or verb == "scale"
        specs = {name: page[1] for name, page in before.items()}
        wanted = wished(verb, request.path_params["id"], command, specs, self._fleet, self.reverts)
        for name, spec in wanted.items():
            if name in now:
                assert now[name][1] == spec, f"{verb} {command}: {name} is {now[name][1]}, not {spec}"
        for name in changed.keys() - wanted.keys():
            if f"tenant:{EVERYONE}" in wanted and self._follows(name, before) and self._follows(name, now):
                continue
            assert name not in before, f"{verb} {command} changed {name}: {before.get(name)} to {now[name]}"
        self._turn_to(now)
        return {name: now[name] for name in changed if name in now}

    # --- what is -------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Whatever changed since the last look, the server did by itself and had a reason for."""
        now = self._now()
        if now == self._pages:
            return
        for name, (version, spec) in now.items():
            old = self._pages.get(name)
            if old is None or old[1] == spec:
                if self._follows(name, now):
                    continue
                # Back and forth is a change that was to be taken back, which the replica would not have.
                may = old is None or old[0] == version or self.reverts.concern(name)
                assert may, f"{name} has the new version {version} and nothing changed"
                continue
            if name == "fleet":
                same = getattr(old[1], "shed", None) == getattr(spec, "shed", None)
                own = same and self._scaled and self._operations.running("scale") is None
                assert own, f"nobody asked for {spec} in the place of {old[1]}"
            else:
                assert self.reverts.explain(name, old[1], spec), (
                    f"{name}: nobody asked for {spec} in the place of {old[1]}"
                )
        self._turn_to(now)

    def _turn_to(self, now: dict[str, Page]) -> None:
        for name, (version, spec) in now.items():
            known = self._history.setdefault((name, version), spec)
            assert known == spec, f"{name} {version} was {known} and is {spec}"
        self._pages = now

    def _now(self) -> dict[str, Page]:
        specs, desk = self._fleet.specs, self._fleet.tenants.desk
        pages: dict[str, Page] = {"fleet": (specs.version("fleet"), specs.spec("fleet"))}
        for handle in self._fleet.members.handles.values():
            if not handle.leaving:
                target = f"replica:{handle.id}"
                pages[target] = (specs.version(target), specs.spec(target))
        for name in TENANTS:
            own: TenantLimits | None = desk.default if name == EVERYONE else desk.named.get(name)
            pages[f"tenant:{name}"] = (specs.version(f"tenant:{name}"), own)
        return pages

    def _follows(self, name: str, pages: dict[str, Page]) -> bool:
        """A tenant without limits of its own has the version of those that it goes by."""
        return name in pages and pages[name] == (pages[f"tenant:{EVERYONE}"][0], None)

    def unfinished(self) -> list[str]:
        return [each.id for each in self._operations.newest_first() if each.phase not in ENDED]


@coroutine
def _with_a_look(
    work: Coroutine[Any, Any, T] | Any, took_effect: Callable[[BaseException | None], None]
) -> Generator[Any, Any, T]:
    """``work``, and a look when it waits for the first time, or is done without that."""
    try:
        waits_for = work.send(None)
    except StopIteration as stop:
        took_effect(None)
        return stop.value
    except Exception as error:
        took_effect(error)
        raise
    took_effect(None)
    while True:
        try:
            got = yield waits_for
        except BaseException as error:  # noqa: BLE001  it goes on in there
            waits_for = _thrown(work, error)
            if isinstance(waits_for, StopIteration):
                return waits_for.value
        else:
            try:
                waits_for = work.send(got)
            except StopIteration as stop:
                return stop.value


def _thrown(work: Any, error: BaseException) -> Any:
    try:
        return work.throw(error)
    except StopIteration as stop:
        return stop
