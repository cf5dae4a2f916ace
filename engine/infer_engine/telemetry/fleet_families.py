"""What the metrics page tells of the server as a whole: its gateway, how many replicas the demand calls for,
whether all of it is simulated, and what runs."""

import asyncio
from collections.abc import Iterator
from importlib import metadata

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from infer_engine.protocol import PROTOCOL_VERSION, Fleet, GatewayStatus, ScalingStatus
from infer_engine.telemetry.families import gauges_of_fleet


def fleet_families(model: str, fleet: Fleet, gateway: GatewayStatus, held: int) -> Iterator[Metric]:
    """``held``: requests that no replica takes now."""
    yield from gauges_of_fleet(
        model,
        (
            ("infer_requests_held", "Requests that no replica takes now.", held),
            ("infer_gateway_connections", "Open client connections.", gateway.connections),
            ("infer_gateway_loop_lag_seconds", "Worst delay of the event loop lately.", gateway.loop_lag_s),
            ("infer_event_loop_tasks", "Tasks of the server's event loop.", _tasks()),
        ),
    )
    if fleet.scaling is not None:
        yield from _scaling(model, fleet.scaling)
    yield from _simulation(model, fleet)
    build = GaugeMetricFamily(
        "infer_build_info", "What runs.", labels=("model_name", "version", "protocol_version")
    )
    build.add_metric([model, _version(), str(PROTOCOL_VERSION)], 1)
    yield build


def _scaling(model: str, scaling: ScalingStatus) -> Iterator[Metric]:
    """The recommended count and what it is worked out of, for autoscalers and alarms."""
    return gauges_of_fleet(
        model,
        (
            ("infer_recommended_replicas", "Replicas that the demand calls for.", scaling.recommended),
            (
                "infer_scaling_queue_wait_p95_seconds",
                "Wait for admission over the last minute, those still waiting included.",
                scaling.queue_wait_p95_s,
            ),
            (
                "infer_scaling_kv_pressure_ratio",
                "KV blocks in use or waited for, as a share of what ready replicas admit.",
                scaling.kv_pressure,
            ),
            (
                "infer_scaling_kv_growth_replicas_per_minute",
                "Growth of that demand, in replicas' worth of KV.",
                scaling.kv_slope_per_min,
            ),
            ("infer_scaling_boot_seconds", "From a replica's start until it is ready.", scaling.boot_s),
        ),
    )


def _simulation(model: str, fleet: Fleet) -> Iterator[Metric]:
    """1 where nothing on this page was measured on a GPU, so that no alarm is built on it by mistake."""
    simulation = fleet.simulation
    mark = GaugeMetricFamily(
        "infer_simulated",
        "1: no model computes here, and all durations are simulated seconds.",
        labels=("model_name", "deployment"),
    )
    mark.add_metric([model, simulation.deployment if simulation else ""], float(fleet.simulated))
    yield mark
    if simulation is not None:
        yield from gauges_of_fleet(
            model,
            (
                ("infer_simulation_speed", "Simulated seconds per second, as asked.", simulation.speed),
                ("infer_simulation_achieved_speed", "And as it was lately.", simulation.achieved_speed),
            ),
        )


def _tasks() -> int | None:
    """None where the page is made outside of the server's event loop. Too slow to count for every status."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return None


def _version() -> str:
    try:
        return metadata.version("infer-console")
    except metadata.PackageNotFoundError:
        return "unknown"
