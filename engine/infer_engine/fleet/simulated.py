"""A fleet whose replicas are simulated: what takes their place in it, and nothing else, is different."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.router import Policy, choose
from infer_engine.fleet.spec_file import SpecDir
from infer_engine.planner import Deployment
from infer_engine.protocol import Simulation
from infer_engine.replica.launch_inproc import InprocReplicas
from infer_engine.replica.messages import ReplicaConfig
from infer_engine.replica.virtual_clock import Clock
from infer_engine.runner.simulated_runner import SimulatedRunner
from infer_engine.settings import ReplicaSettings, ServerSettings

#: The prompt whose prefill tells how fast tokens are computed again, beside the speed of the host's memory.
RECOMPUTE_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class SimulatedFleet:
    fleet: Fleet
    #: For drills: here replicas are made to fail.
    replicas: InprocReplicas


def simulated_fleet(
    settings: ServerSettings,
    clock: Clock,
    *,
    wall: Callable[[], float],
    achieved_speed: Callable[[], float | None],
    vocabulary: Sequence[int] | None = None,
    run_dir: Path | None = None,
    load_s: float = 0.0,
    policy: Policy = choose,
    spec_dir: SpecDir | None = None,
    real_clock: Callable[[], float] | None = None,
) -> SimulatedFleet:
    """``settings.simulate`` says what is simulated. ``wall`` gives Unix seconds; ``vocabulary`` are the
    tokens that answers are made of; ``load_s`` is how long a replica takes to load; ``policy`` decides
    where requests go. To be called in a running loop."""
    deployment = settings.deployment
    if deployment is None:
        raise ValueError("settings.simulate is not set")
    settings = structs.replace(settings, replica=_with_costs(settings.replica, deployment))

    def make_runner(config: ReplicaConfig, advance: Callable[[float], None]) -> SimulatedRunner:
        own = config.settings
        return SimulatedRunner(
            deployment,
            block_size=own.block_size,
            advance=advance,
            seed=settings.seed,
            kv_blocks=own.kv_blocks,
            host_blocks=0 if own.preempt_mode == "recompute" else own.host_blocks,
            vocabulary=vocabulary,
        )

    def simulation() -> Simulation:
        return Simulation(
            deployment=str(deployment),
            speed=settings.speed,
            achieved_speed=achieved_speed(),
            seed=settings.seed,
            elapsed_s=clock.now(),
        )

    replicas = InprocReplicas(clock, make_runner, pace=settings.speed, load_s=load_s)
    fleet = Fleet(
        settings,
        run_dir=run_dir,
        launch=replicas.launch,
        link=replicas.link,
        clock=clock.now,
        wall=wall,
        pace=settings.speed,
        simulation=simulation,
        policy=policy,
        spec_dir=spec_dir,
        real_clock=real_clock,
    )
    return SimulatedFleet(fleet, replicas)


def _with_costs(settings: ReplicaSettings, deployment: Deployment) -> ReplicaSettings:
    """Swap or recompute is chosen by what either costs on these GPUs."""
    return structs.replace(
        settings,
        recompute_tokens_per_s=RECOMPUTE_TOKENS / deployment.prefill_s(RECOMPUTE_TOKENS),
        swap_bytes_per_s=deployment.gpu.host_bytes_per_s * deployment.gpus,
    )
