"""Wires the parts into one process: fleet, gateway, control API, and the ways in which all of it ends."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

from infer_engine.connections import Connections
from infer_engine.control.audit import Audit
from infer_engine.control.audit_files import AuditDirError, AuditFiles
from infer_engine.control.context import Context
from infer_engine.control.corpus import ordinary_tokens
from infer_engine.control.doors import Doors
from infer_engine.control.keeping import Keeping
from infer_engine.control.operations import Operations
from infer_engine.control.recorder import Recorder
from infer_engine.control.traffic import Injector
from infer_engine.entrance import Entrance, open_entrance
from infer_engine.file_limit import raise_file_limit
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.joining import Door
from infer_engine.fleet.on_ray import enter_ray
from infer_engine.fleet.simulated import simulated_fleet
from infer_engine.fleet.spec_file import SpecDirError
from infer_engine.fleet.upstream import UpstreamError, upstream_fleet
from infer_engine.garbage import leave_out_what_is_here, look_seldom
from infer_engine.gateway.app import build_gateway, malformed_request, too_many_connections
from infer_engine.gateway.keys import Keyring
from infer_engine.gateway.load import GatewayLoad
from infer_engine.gateway.simulated import MarkSimulated
from infer_engine.join_door import open_door
from infer_engine.kept_state import KeptState, kept_state
from infer_engine.listener import Listener
from infer_engine.loaded_model import LoadedModel, load_model
from infer_engine.model.errors import ModelError
from infer_engine.parts import Parts
from infer_engine.protocol import Operation
from infer_engine.replica.launch_ray import NoClusterError, RayReplicas
from infer_engine.replica.tcp_link import ListenError as JoinListenError
from infer_engine.replica.virtual_clock import PacedClock
from infer_engine.secret_file import SecretFileError
from infer_engine.settings import ServerSettings
from infer_engine.sockets import Sockets, reached_at, url_of
from infer_engine.start_error import StartError
from infer_engine.stop_signal import (
    StopSignal,
    hear_signals,
    hold_lifeline,
    leave_anyway_after,
    unless_stopped,
)
from infer_engine.supervisor import Supervisor
from infer_engine.telemetry.audit_metrics import AuditMetrics
from infer_engine.telemetry.mqtt import Publisher
from infer_engine.telemetry.mqtt_config import read_broker
from infer_engine.telemetry.otlp_traces import OtlpTraces, collector_url, require_libraries
from infer_engine.version import version

log = logging.getLogger(__name__)

#: The whole end takes no longer than this beyond the drain; then the process goes as it is.
END_S = 20.0
#: How often the start is checked for replicas that all failed.
START_POLL_S = 0.1


async def serve(
    settings: ServerSettings,
    *,
    listen_is_default: bool,
    lifeline: bool,
    say: Callable[[str], None] = lambda _line: None,
) -> int:
    """Serve until asked to stop; the exit code. StartError, with nothing left behind, when that is not
    possible. ``say`` gets a line for people when it listens."""
    look_seldom()
    stop = StopSignal(settings.drain_s)
    hear_signals(stop, hangup_stops=settings.token_file is None and settings.api_keys is None)
    most_connections = raise_file_limit(settings.max_connections)
    if lifeline:
        hold_lifeline(stop)
    entrance = open_entrance(settings, listen_is_default=listen_is_default)
    sockets = entrance.sockets
    try:
        with kept_state(settings, sockets.control_url, embedded=lifeline) as kept:
            model = await unless_stopped(load_model(settings), stop)
            on_ray = None if model is None else await unless_stopped(enter_ray(settings), stop)
            if model is not None and on_ray is not None:
                try:
                    await _run(
                        on_ray.settings, model, entrance, stop, kept, most_connections, on_ray.replicas, say
                    )
                finally:
                    await on_ray.close()
    except (ModelError, SpecDirError, AuditDirError, NoClusterError, JoinListenError) as error:
        raise StartError(str(error).replace("\n", " ")) from error
    finally:
        sockets.close()
    return 0


async def _run(
    settings: ServerSettings,
    model: LoadedModel,
    entrance: Entrance,
    stop: StopSignal,
    kept: KeptState,
    most_connections: int,
    ray: RayReplicas | None,
    say: Callable[[str], None],
) -> None:
    sockets, admitted, keyring = entrance
    clock = PacedClock(settings.speed) if settings.deployment is not None else None
    door = await open_door(settings, kept)
    fleet = _fleet(settings, model, clock, kept, door, ray, sockets)
    fleet.specs.trouble = fleet.specs.trouble or kept.trouble
    operations = Operations(time.time, lambda operation: _announce(fleet, operation))
    limits = Connections(
        most=most_connections,
        per_client=settings.max_connections_per_client or max(1, most_connections * 3 // 4),
    )
    load = GatewayLoad(lambda: limits.open, limits)
    traces = _traces(settings, fleet, model.name)
    audit_files = AuditFiles((kept.directory or fleet.run_dir) / "audit")
    app = build_gateway(
        fleet,
        model.tokenizer,
        model_name=model.name,
        context_length=model.context_length,
        load=load,
        keyring=keyring,
        protect_metrics=settings.protect_metrics,
        stopping=stop.asked.is_set,
        collectors=(AuditMetrics(audit_files.sync_s), *(() if traces is None else (traces,))),
    )
    marked = app if settings.deployment is None else MarkSimulated(app, str(settings.deployment))
    gateway = Listener(
        marked, sockets.gateway, limits=limits, refusal=too_many_connections, malformed=malformed_request()
    )
    context = Context(
        fleet=fleet,
        tokenizer=model.tokenizer,
        operations=operations,
        injector=Injector(fleet, model.tokenizer, operations, model.context_length),
        gateway_status=lambda: load.status(sockets.gateway_url),
        server_version=version(),
        audit=Audit(audit_files),
    )
    recorder = Recorder(context, max_bytes=settings.recorder_mib << 20) if settings.recorder_mib else None
    keeping = Keeping(recorder, fleet.settings.replicas, fleet.board.status)
    context.recorder, context.history = keeping.recorder, keeping.history
    control = Doors(context, admitted, settings.control_hosts, sockets.control, sockets.control_tcp)
    parts = Parts(
        fleet=fleet,
        clock=clock,
        operations=operations,
        context=context,
        keeping=keeping,
        load=load,
        publisher=_publisher(settings, context, sockets),
        traces=traces,
        gateway=gateway,
        control=control,
    )
    supervisor = Supervisor.of_this_process()
    try:
        await parts.start()
        if keyring is not None or admitted.token_file is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _read_again, control, keyring)
        _say_listening(sockets, "http" if admitted.tls is None else "https", fleet)
        say(f"control {sockets.control_url}  gateway {sockets.gateway_url}")
        for line in _kept(fleet):
            log.info("%s", line)
            say(line)
        supervisor.ready()
        await _until_stopped(fleet, stop)
    finally:
        supervisor.stopping()
        leave_anyway_after(stop.drain_s + END_S)
        await parts.close(stop)
        await supervisor.close()


def _publisher(settings: ServerSettings, context: Context, sockets: Sockets) -> Publisher | None:
    try:
        broker = read_broker(settings)
        if broker is None:
            return None
        control = sockets.control_tcp and reached_at(
            sockets.control_tcp, settings.control_hosts, "http" if settings.tls_cert is None else "https"
        )
        return Publisher(context.fleet, broker, status=context.watched, control=control)
    except (OSError, ValueError, SecretFileError) as error:
        raise StartError(str(error)) from error


def _traces(settings: ServerSettings, fleet: Fleet, model: str) -> OtlpTraces | None:
    if settings.otlp is None:
        return None
    try:
        url = collector_url(settings.otlp)
        require_libraries()
    except ValueError as error:
        raise StartError(str(error)) from error
    # Only here: the libraries are an extra, and take a while to load.
    from infer_engine.telemetry.otlp import OtlpExporter

    exporter = OtlpExporter(url, fleet=settings.name, version=version(), incarnation=fleet.epoch)
    return OtlpTraces(fleet, exporter, model=model, sample_ratio=settings.otlp_sample)


def _fleet(
    settings: ServerSettings,
    model: LoadedModel,
    clock: PacedClock | None,
    kept: KeptState,
    door: Door | None,
    ray: RayReplicas | None,
    sockets: Sockets,
) -> Fleet:
    if ray is not None:
        return Fleet(settings, spec_dir=kept.specs, launch=ray.launch, link=ray.link, door=door)
    if settings.upstreams:
        ports = frozenset(
            each.getsockname()[1] for each in (sockets.gateway, sockets.control_tcp) if each is not None
        )
        try:
            return upstream_fleet(
                settings, model.tokenizer, model.context_length, own_ports=ports, spec_dir=kept.specs
            )
        except UpstreamError as error:
            raise StartError(str(error)) from error
    if clock is None:
        return Fleet(settings, spec_dir=kept.specs, door=door)
    return simulated_fleet(
        settings,
        clock,
        wall=time.time,
        achieved_speed=lambda: clock.achieved_speed,
        vocabulary=ordinary_tokens(model.tokenizer),
        spec_dir=kept.specs,
    ).fleet


async def _until_stopped(fleet: Fleet, stop: StopSignal) -> None:
    """StartError when every replica has died before one of them was ever ready."""
    deaths: dict[str, str] = {}
    while not fleet.ready and not stop.asked.is_set():
        for replica in fleet.status().replicas:
            if replica.state in ("failed", "restarting") and replica.launcher != "joined":
                deaths[replica.id] = replica.error or "unknown error"
        joinable = fleet.joining is not None and fleet.joining.door.listed is not None
        if deaths and not joinable and deaths.keys() == set(fleet.replica_ids()):
            stop.drain_s = 0.0
            raise StartError("no replica could start: " + "; ".join(sorted(set(deaths.values()))))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_POLL_S):
                await stop.asked.wait()
    leave_out_what_is_here()
    await stop.asked.wait()


def _read_again(control: Doors, keyring: Keyring | None) -> None:
    """SIGHUP, where there is something to read."""
    control.reload()
    if keyring is not None:
        keyring.reload()


def _say_listening(sockets: Sockets, control_scheme: str, fleet: Fleet) -> None:
    """One line on stdout for whoever started this process; it may not be interested."""
    line = {"control": sockets.control_url, "gateway": sockets.gateway_url, "pid": os.getpid()}
    if sockets.control_tcp is not None:
        line["control_tcp"] = url_of(sockets.control_tcp, control_scheme)
    if fleet.joining is not None:
        line["join"] = fleet.joining.link.endpoint
    try:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    except OSError:
        log.info("nobody reads stdout")
    log.info("listening: %s", ", ".join(f"{name} {where}" for name, where in line.items() if name != "pid"))


def _kept(fleet: Fleet) -> list[str]:
    """What came back with the state, and works though nobody gave it to this start."""
    return [
        f"{replica.id} has limits from before, kept with the state: "
        + ", ".join(
            f"{name} {replica.spec.limits.get(name)} (set {_day(at)})"
            for name, at in sorted(replica.kept_limits.items())
        )
        for replica in fleet.status().replicas
        if replica.kept_limits and replica.spec is not None
    ]


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))


def _announce(fleet: Fleet, operation: Operation) -> None:
    """A change of an operation's phase is an event. User text (its reason) stays out of the message."""
    fleet.feed.event(
        "operation",
        replica=operation.target if operation.target in fleet.replica_ids() else None,
        reason=operation.phase,
        operation=operation.id,
        actor=operation.actor or None,
        message=f"{_kind(operation)} {operation.target} {operation.phase}"
        + (f": {operation.message}" if operation.message else ""),
    )


def _kind(operation: Operation) -> str:
    """Its opposite has the same kind, and would read the same."""
    on = operation.params.get("on")
    return operation.kind if on is None else f"{operation.kind} {'on' if on else 'off'}"
