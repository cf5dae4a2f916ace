"""Who takes requests: the tenant's rules first, then a place for each, and a word in the feed for those who
are turned away."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random, SystemRandom

from infer_engine.fleet.generation import Generation, GenerationSpec, Refusal
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.refusals import stopping
from infer_engine.fleet.tenant_use import TenantUses
from infer_engine.fleet.tenants import TenantDesk

ID_BITS = 24


@dataclass(slots=True)
class Intake:
    ledger: Ledger
    placer: Placer
    tenants: TenantDesk
    uses: TenantUses
    #: Request ids are drawn from it.
    random: Random
    #: Takes one of several choices back; it must not be refused itself.
    take_back: Callable[[str], object]
    #: The server stops: nothing is taken any more.
    closed: bool = False

    def submit(self, spec: GenerationSpec) -> Generation:
        """Refusal when it is not taken; see ``Fleet.submit``."""
        now_s = self.ledger.clock()
        try:
            if self.closed:
                raise stopping()
            generation = self._taken(self.tenants.at_the_door(spec, now_s), now_s)
        except Refusal as refusal:
            self.uses.refused(spec, now_s)
            self.ledger.feed.event(
                "reject",
                tenant=spec.tenant,
                tier=spec.tier,
                reason=refusal.problem.code,
                message=refusal.problem.detail,
                synthetic=spec.synthetic,
            )
            raise
        return generation

    def submit_choices(self, specs: Sequence[GenerationSpec]) -> list[Generation]:
        """All of them or (Refusal) none; see ``Fleet.submit_choices``."""
        taken = [self.submit(specs[0])]
        try:
            for spec in specs[1:]:
                taken.append(self.submit(replace(spec, fork_of=taken[0].id)))
        except Refusal:
            for generation in taken:
                self.take_back(generation.id)
            raise
        return taken

    def _taken(self, spec: GenerationSpec, now_s: float) -> Generation:
        generation = Generation(id=self._new_id(), spec=spec, arrived_s=now_s)
        try:
            self.placer.take(generation)
        except Refusal:
            self.tenants.refused_elsewhere(spec)
            raise
        self.uses.taken(spec, now_s)
        return generation

    def _new_id(self) -> str:
        while True:
            request_id = f"{self.random.getrandbits(ID_BITS):06x}"
            if not self.ledger.knows(request_id):
                return request_id


def id_source(seed: int) -> Random:
    """Seed 0 means that nobody asked for the same ids again."""
    return Random(seed) if seed else SystemRandom()
