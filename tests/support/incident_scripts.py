"""One incident for each of the doctor's rules, played in a simulated fleet.

Each lets a fleet live normally for as long as its rule needs to know what is usual, says when something
begins to be wrong, and goes on until the rule should have spoken for some time."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from infer_engine.fleet.gpu_health import GpuWatch, Reading
from infer_engine.fleet.router import Ask, Choice, Load
from infer_engine.protocol import SetHeadroom, Tier
from msgspec import structs
from support.incidents import CALM, Ward
from support.simulated_fleet import SimulatedBench, run, spec

TENANTS = tuple(f"t{number}" for number in range(8))
GPU = "GPU-5c8a1f0e"


@dataclass(frozen=True)
class Incident:
    """``rule`` is the only one that may find anything, and is to do so within ten seconds."""

    rule: str
    script: Callable[[Ward], Awaitable[None]]
    simulate: str = "70b@4×h100"
    replicas: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    policy: Callable[[Sequence[Load], Ask], Choice | None] | None = None
    #: Where one rule has several.
    name: str = ""

    @property
    def id(self) -> str:
        return self.name or self.rule

    def play(self, run_dir: Path) -> Ward:
        async def drill(bench: SimulatedBench) -> Ward:
            ward = Ward(bench)
            try:
                await self.script(ward)
            finally:
                ward.close()
            return ward

        more = {} if self.policy is None else {"policy": self.policy}
        return run(
            drill,
            run_dir,
            simulate=self.simulate,
            replicas=self.replicas,
            **more,
            **self.settings,
        )


class Sender:
    """Sends requests, no two alike unless ``shared`` says so."""

    def __init__(self, ward: Ward) -> None:
        self.ward = ward
        self._sent = 0

    def send(
        self,
        prompt: int,
        answer: int,
        count: int = 1,
        *,
        tenant: str | None = None,
        tier: Tier = "interactive",
        shared: bool = False,
    ) -> None:
        for _ in range(count):
            self._sent += 1
            self.ward.fleet.submit(
                spec(
                    prompt,
                    answer,
                    first=0 if shared else 100_000 * self._sent,
                    tenant=tenant or TENANTS[self._sent % len(TENANTS)],
                    tier=tier,
                )
            )

    async def steadily(self, seconds: int, per_s: float, prompt: int, answer: int, **more: Any) -> None:
        """``per_s`` requests a second, evenly, and a look each second."""
        due = 0.0
        for _ in range(seconds):
            due += per_s
            while due >= 1.0:
                self.send(prompt, answer, **more)
                due -= 1.0
            await self.ward.seconds(1)


async def _queueing(ward: Ward) -> None:
    """Eighty requests of eight tenants at once into a pool for ten."""
    sender = Sender(ward)
    await sender.steadily(5, 1, 800, 100)
    ward.begins()
    sender.send(800, 100, 80)
    await ward.seconds(9)


async def _interference(ward: Ward) -> None:
    """Twelve decode; prompts of 30,000 tokens come, in chunks as long as a budget of 8,192 lets them be."""
    sender = Sender(ward)
    sender.send(200, 6_000, 12)
    await ward.seconds(10)
    ward.begins()
    await sender.steadily(12, 0.5, 30_000, 2)


async def _growth(ward: Ward) -> None:
    """A hundred answers more at once, to a prompt that is cached."""
    sender = Sender(ward)
    sender.send(3_000, 6_000, 8, shared=True)
    await ward.seconds(22)
    ward.begins()
    sender.send(3_000, 6_000, 120, shared=True)
    await ward.seconds(12)


async def _pressure(ward: Ward) -> None:
    """Short prompts are let in, and their answers outgrow the pool."""
    sender = Sender(ward)
    await sender.steadily(3, 1, 300, 50)
    ward.begins()
    sender.send(300, 3_000, 22)
    await ward.seconds(12)


async def _headroom_high(ward: Ward) -> None:
    sender = Sender(ward)
    await sender.steadily(3, 1, 300, 50)
    ward.begins()
    sender.send(800, 100, 60)
    await ward.seconds(8)


async def _headroom_changed(ward: Ward) -> None:
    """Somebody leaves no more than a third of the pool to new requests."""
    sender = Sender(ward)
    await sender.steadily(12, 2, 800, 150)
    await ward.fleet.limits.set_headroom(SetHeadroom(percent=75.0))
    ward.begins()
    await sender.steadily(12, 4, 800, 150)


async def _collapse(ward: Ward) -> None:
    """Every prompt began alike; now each begins with something of its own."""
    sender = Sender(ward)
    await sender.steadily(30, 3, 2_000, 20, shared=True)
    ward.begins()
    await sender.steadily(14, 3, 2_000, 20)


async def _imbalance(ward: Ward) -> None:
    sender = Sender(ward)
    await sender.steadily(5, 1, 300, 50)
    ward.begins()
    await sender.steadily(10, 4, 500, 400)


def _always_first(loads: Sequence[Load], _ask: Ask) -> Choice | None:
    return Choice(loads[0].replica, "first", len(loads)) if loads else None


async def _stall(ward: Ward) -> None:
    sender = Sender(ward)
    sender.send(300, 4_000, 8)
    await ward.seconds(5)
    ward.bench.replicas.freeze("r0")
    ward.begins()
    await ward.seconds(12)


async def _shift(ward: Ward) -> None:
    """The same number of requests, with prompts ten times as long, of all tenants."""
    sender = Sender(ward)
    await sender.steadily(20, 2, 300, 30)
    ward.begins()
    await sender.steadily(12, 2, 3_000, 30)


async def _exhaustion(ward: Ward) -> None:
    """Requests come faster than they end; the pool is used for half when it begins to be told."""
    sender = Sender(ward)
    await sender.steadily(12, 1, 1_600, 5_000)
    ward.begins()
    await sender.steadily(8, 1, 1_600, 5_000)


async def _tenant(ward: Ward) -> None:
    """*acme* asks for most of the pool; what others ask for waits."""
    sender = Sender(ward)
    await sender.steadily(5, 1, 1_280, 100)
    ward.begins()
    sender.send(4_000, 900, 30, tenant="acme")
    await sender.steadily(12, 2, 1_280, 200)


async def _batch(ward: Ward) -> None:
    """Batch has filled its part; interactive requests find the rest taken."""
    sender = Sender(ward)
    sender.send(800, 400, 40, tier="batch")
    await ward.seconds(3)
    ward.begins()
    await sender.steadily(10, 6, 800, 32)


async def _lag(ward: Ward) -> None:
    sender = Sender(ward)
    await sender.steadily(3, 1, 300, 50)
    ward.source.gateway = structs.replace(CALM, loop_lag_s=0.4, loop_lag_p99_s=0.25, connections=1_980)
    ward.begins()
    await sender.steadily(8, 1, 300, 50)


async def _tokenizer(ward: Ward) -> None:
    sender = Sender(ward)
    await sender.steadily(3, 1, 300, 50)
    ward.source.gateway = structs.replace(CALM, tokenizer_queue=40)
    ward.begins()
    await sender.steadily(8, 1, 300, 50)


def _read_gpu(ward: Ward, reading: Reading) -> None:
    """As NVML would be read; there is no GPU here."""
    members, handle = ward.fleet.members, ward.fleet.members.handles["r0"]
    assert handle.info is not None
    info = handle.info
    handle.info = structs.replace(info, gpu_uuid=GPU)
    watch = GpuWatch(members.handles, members.lifecycles, ward.fleet.feed, lambda: None)
    watch.take(replace(reading, uncorrectable_errors=0, temperature_c=60, xids=()))
    watch.take(reading)
    handle.info = info  # or the fleet's own watch would ask NVML for it


async def _hot(ward: Ward) -> None:
    sender = Sender(ward)
    await sender.steadily(3, 1, 300, 50)
    ward.begins()
    _read_gpu(ward, Reading(GPU, temperature_c=92, slowdown_c=90))
    await sender.steadily(8, 1, 300, 50)


async def _broken(ward: Ward) -> None:
    sender = Sender(ward)
    await sender.steadily(3, 1, 300, 50)
    ward.begins()
    _read_gpu(ward, Reading(GPU, uncorrectable_errors=2, xids=(94,)))
    await sender.steadily(8, 1, 300, 50)


async def _slots(ward: Ward) -> None:
    """Four slots for sixty requests: memory is free, and TTFT rises all the same."""
    sender = Sender(ward)
    await sender.steadily(100, 0.2, 300, 20)
    ward.begins()
    sender.send(300, 200, 60)
    await ward.seconds(12)


INCIDENTS: tuple[Incident, ...] = (
    Incident("queueing_on_kv", _queueing, settings={"kv_blocks": 600}),
    Incident("prefill_interference", _interference, settings={"token_budget": 8_192, "max_running": 64}),
    Incident("batch_growth", _growth, simulate="8b@1×h100", settings={"max_running": 512}),
    Incident("kv_pressure", _pressure, settings={"kv_blocks": 600}),
    Incident("headroom_low", _pressure, settings={"kv_blocks": 600, "admit_limit_ratio": 0.98}),
    Incident("headroom_high", _headroom_high, settings={"kv_blocks": 600, "admit_limit_ratio": 0.5}),
    Incident("headroom_changed", _headroom_changed, settings={"kv_blocks": 600}),
    Incident("prefix_collapse", _collapse),
    Incident("router_imbalance", _imbalance, replicas=2, settings={"max_running": 8}, policy=_always_first),
    Incident("replica_stalled", _stall, replicas=2),
    Incident("context_shift", _shift, replicas=2),
    Incident("kv_exhaustion", _exhaustion, settings={"kv_blocks": 3_000}),
    Incident("tenant_crowding", _tenant, settings={"kv_blocks": 2_000}),
    Incident("batch_crowding", _batch, settings={"kv_blocks": 1_200, "batch_limit_ratio": 0.65}),
    Incident("gateway_lag", _lag),
    Incident("tokenizer_lag", _tokenizer),
    Incident("gpu_fault", _hot, replicas=2, name="gpu_hot"),
    Incident("gpu_fault", _broken, replicas=2, name="gpu_broken"),
    Incident("latency_moved", _slots, settings={"max_running": 4}),
)
