"""How many replicas there are: what changing that will do, and who comes and who goes."""

from collections.abc import Sequence
from dataclasses import dataclass

from infer_engine.fleet.beginning import Wanted
from infer_engine.fleet.drain import MIN_READY
from infer_engine.fleet.generation import misfit, refuse
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.members import Members
from infer_engine.fleet.not_ours import not_ours
from infer_engine.protocol import Effect, Scale
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.settings import ServerSettings


def joined_words(handle: ReplicaHandle) -> str:
    """Why the server cannot do with it as with one of its own; the id goes before it."""
    return f"joined by itself from {handle.joined.host if handle.joined else '?'}"


@dataclass(slots=True)
class Resizing:
    members: Members
    wanted: Wanted
    ledger: Ledger
    settings: ServerSettings

    def present(self) -> list[ReplicaHandle]:
        """Those that count: launched by the server, neither fenced nor on their way out."""
        return [each for each in self._launched() if each.fenced is None and not each.leaving]

    def _launched(self) -> list[ReplicaHandle]:
        return [each for each in self.members.handles.values() if each.joined is None]

    def _joined_ready(self) -> int:
        return sum(each.state == "ready" for each in self.members.handles.values() if each.joined is not None)

    @property
    def most(self) -> int:
        """How many there may be beside those that are fenced."""
        others = len(self._launched()) - len(self.present())
        return max(0, self.settings.most_replicas - others)

    def predict(self, command: Scale) -> Effect:
        """Refusal where it may not be."""
        present = self.present()
        before, after = len(present), command.replicas
        self._check(command, present)
        victims = self.victims(command)
        summary = [
            f"{before} → {after} replicas" if before != after else f"there are {after} replicas already"
        ]
        warnings: list[str] = []
        if after > before:
            summary.append(f"{after - before} start and take requests once they have loaded")
            warnings += self._thread_warnings(present, after)
        moved = sum(len(self.ledger.on(each)) for each in victims)
        if victims:
            summary.append(f"{', '.join(victims)} drain one after another, then end")
            summary.append(f"{moved} requests that they have finish or go on elsewhere")
        left = sum(each.state == "ready" and each.id not in victims for each in present)
        left += self._joined_ready()
        others = [each.id for each in self.members.handles.values() if each.joined is not None]
        if others:
            summary.append(f"{len(others)} that joined by themselves are not counted, and stay")
        if left < MIN_READY and after < before:
            warnings.append("no ready replica will be left: new requests are held or refused")
        kv = self._kv_ratio_after(present, victims, max(0, after - before))
        numbers: dict[str, float | None] = {
            "before": float(before),
            "after": float(after),
            "started": float(max(0, after - before)),
            "ended": float(len(victims)),
            "requests": float(moved),
            "ready_after": float(left),
            "most": float(self.most),
            "fleet_kv_ratio_after": kv,
            "threads_of_new": float(self.members.threads_for(after)),
        }
        return Effect(summary=summary, numbers=numbers, warnings=warnings)

    def victims(self, command: Scale) -> list[str]:
        """Who goes: those named, then those that serve least: not ready, then the fewest requests, the
        youngest first among equals."""
        present = self.present()
        excess = max(0, len(present) - command.replicas)
        named = [each for each in present if each.id in command.victims]
        others = [each for each in reversed(present) if each.id not in command.victims]
        others.sort(key=lambda each: (each.state == "ready", len(self.ledger.on(each.id))))
        return [each.id for each in (*named, *others)[:excess]]

    def begin(self, command: Scale) -> tuple[list[str], list[str]]:
        """It is wanted from now on: who was started, and who is to go, which for them begins later."""
        victims = self.victims(command)
        self.wanted.replicas = command.replicas
        for each in victims:
            self.members.handles[each].leaving = True
        missing = command.replicas - len(self.present())
        return [self._join(command.replicas) for _ in range(max(0, missing))], victims

    def stay(self, replicas: Sequence[str]) -> None:
        """They do not go after all: so many are wanted as there are."""
        for each in replicas:
            if each in self.members.handles:
                self.members.handles[each].leaving = False
        self.wanted.replicas = len(self.present())

    async def remove(self, replica: str, *, actor: str = "") -> None:
        await self.members.remove(replica, actor=actor)

    def replacement_obstacle(self, fenced: ReplicaHandle) -> str | None:
        """Why none is started in the place of a replica that is to be fenced; None when one is."""
        if fenced.joined is not None:
            return "it joined by itself"
        others = [each for each in self.present() if each is not fenced]
        if fenced.id in self.members.foreign:
            return "it is not ours to start"
        if len(others) >= self.wanted.replicas:
            return "enough others are there"
        here = self.settings.launcher != "ray"  # where another may get another GPU
        if here and fenced.info is not None and fenced.info.device.startswith("cuda"):
            return "it would run on the same GPU"
        if len(self._launched()) >= self.settings.most_replicas:
            return f"there may be at most {self.settings.most_replicas} replicas (max_replicas)"
        return None

    def replace(self, fenced: ReplicaHandle) -> str | None:
        """Start another in its place, if that can be; its id."""
        if self.replacement_obstacle(fenced) is not None:
            return None
        return self._join(max(1, self.wanted.replicas - len(self.members.foreign)))

    def _join(self, count: int) -> str:
        return self.members.join(self.wanted.new_id(), count).id

    def _check(self, command: Scale, present: list[ReplicaHandle]) -> None:
        if self.members.foreign:
            raise not_ours("how many there are is what was named with --upstream and --own-replicas")
        if not 0 <= command.replicas <= self.most:
            raise misfit(
                "replicas",
                f"0 to {self.most} is allowed (max_replicas, less those that are fenced), "
                f"got {command.replicas}",
                numbers={"given": command.replicas, "most": self.most},
            )
        known = {each.id for each in present}
        for each in command.victims:
            handle = self.members.handles.get(each)
            if handle is not None and handle.joined is not None:
                raise misfit("victims", f"{each} {joined_words(handle)}: end it where it runs, or fence it")
            if each not in known:
                raise misfit("victims", f"there is no replica {ascii(each)[1:-1][:64]} that could go")
        if len(command.victims) > max(0, len(present) - command.replicas):
            raise misfit(
                "victims",
                f"{len(command.victims)} named, {max(0, len(present) - command.replicas)} are to go",
            )
        victims = self.victims(command)
        others = self._joined_ready()
        ready = sum(each.state == "ready" for each in present) + others
        left = sum(each.state == "ready" and each.id not in victims for each in present) + others
        if victims and left < MIN_READY and left < ready and not command.force:
            raise refuse(
                409,
                "would_break_min_ready",
                "Too few ready replicas would be left.",
                f"{left} ready replicas would be left, at least {MIN_READY} must stay; force overrides this",
                numbers={"ready": ready, "ready_after": left, "min_ready": MIN_READY},
            )
        if command.replicas == 0 and not others and not command.force:
            raise refuse(
                409,
                "would_break_min_ready",
                "No replica would be left.",
                "scaling to 0 needs force",
                numbers={"ready": ready, "ready_after": 0, "min_ready": MIN_READY},
            )

    def _thread_warnings(self, present: list[ReplicaHandle], after: int) -> list[str]:
        threads = self.members.threads_for(after)
        more = [each.id for each in present if each.threads is not None and each.threads > threads]
        if not more or self.settings.simulate is not None:
            return []
        return [
            f"new replicas compute with {threads} threads each; {', '.join(more)} keep more, as they were "
            "started, and share the cores with them until they are restarted"
        ]

    def _kv_ratio_after(self, present: list[ReplicaHandle], victims: list[str], more: int) -> float | None:
        """Blocks used now, over the pool that there will be; a new replica's is as large as the others'."""
        loaded = [each for each in present if each.info is not None]
        used = sum(each.kv_used or 0 for each in loaded)
        pools = [each.info.kv_blocks for each in loaded if each.info is not None and each.id not in victims]
        largest = max((each.info.kv_blocks for each in loaded if each.info is not None), default=0)
        total = sum(pools) + more * largest
        return used / total if total else None
