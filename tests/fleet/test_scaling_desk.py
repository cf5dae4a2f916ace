"""What the scaling signals see of a running fleet beside its memory."""

import pytest
from infer_engine.fleet.scaling import Demand, Recommendation, Scaling
from infer_engine.fleet.scaling_desk import ScalingDesk
from support.fleets import Bench, running_fleet, until


class Asked(Scaling):
    def recommend(self, demand: Demand) -> Recommendation:
        self.demand = demand
        return Scaling.recommend(self, demand)


def demand(bench: Bench, slo_ttft_s: float | None = None, slo_itl_s: float | None = None) -> Demand:
    asked, placement = Asked(1, 8), bench.fleet.placement
    handles = bench.fleet.limits.handles
    ScalingDesk(handles, placement.ledger, bench.fleet.measures, asked, slo_ttft_s, slo_itl_s).tick()
    return asked.demand


async def test_it_sees_who_is_not_ready() -> None:
    async with running_fleet(replicas=2) as bench:
        assert demand(bench).unready == 0
        assert demand(bench).slots_per_replica == bench.fleet.limits.now().replicas["r0"]["max_running"]
        bench.fleet.limits.handles["r1"].state = "failed"
        assert demand(bench).unready == 1


@pytest.mark.parametrize("measure", ["ttft", "itl"])
async def test_it_sees_that_a_promise_is_not_kept(measure: str) -> None:
    async with running_fleet(replicas=1) as bench:
        generation = bench.submit(max_tokens=4)
        await until(lambda: generation.finish_reason is not None, "it has ended")
        assert not demand(bench, 1e6, 1e6).late
        assert demand(bench, **{f"slo_{measure}_s": 1e-9}).late
