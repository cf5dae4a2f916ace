"""Wires the parts into one process: fleet, gateway, control API, and the ways in which all of it ends."""

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from infer_engine.control.api import build_control
from infer_engine.control.context import Context
from infer_engine.control.corpus import ordinary_tokens
from infer_engine.control.keeping import Keeping
from infer_engine.control.operations import Operations
from infer_engine.control.recorder import Recorder
from infer_engine.control.traffic import Injector
from infer_engine.fetching import fetch_model
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.simulated import simulated_fleet
from infer_engine.fleet.views import model_name, served_model
from infer_engine.gateway.app import build_gateway
from infer_engine.gateway.load import GatewayLoad
from infer_engine.gateway.simulated import MarkSimulated
from infer_engine.listener import Listener
from infer_engine.model.architecture import read_architecture
from infer_engine.model.errors import ModelError
from infer_engine.model.source import open_source
from infer_engine.model.store import resolve
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import Operation
from infer_engine.replica.virtual_clock import PacedClock
from infer_engine.settings import DEFAULT_MODEL, ServerSettings, default_control_socket
from infer_engine.sockets import ListenError, Sockets, open_sockets

log = logging.getLogger(__name__)

#: How long running requests may go on after the first SIGTERM.
DRAIN_S = 5.0
#: The whole end takes no longer than this beyond the drain; then the process goes as it is.
END_S = 20.0
#: How often the start is checked for replicas that all failed.
START_POLL_S = 0.1
#: Enough for the most connections on both listeners.
OPEN_FILES = 4_096
STDIN = 0

T = TypeVar("T")


class StartError(Exception):
    """The server cannot serve; ``str()`` is one line for the operator."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    name: str
    tokenizer: Tokenizer
    context_length: int


@dataclass(slots=True)
class StopSignal:
    """Set once the process was asked to end; ``drain_s`` is how long its requests may go on."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    drain_s: float = DRAIN_S

    def on_signal(self, number: int) -> None:
        if self.asked.is_set():
            log.warning("asked to stop twice: leaving at once")
            os._exit(128 + number)
        self.asked.set()

    def on_parent_gone(self) -> None:
        self.drain_s = 0.0
        self.asked.set()


async def serve(settings: ServerSettings, *, listen_is_default: bool, lifeline: bool) -> int:
    """Serve until asked to stop; the exit code. StartError, with nothing left behind, when that is not
    possible."""
    stop = StopSignal()
    _hear_signals(stop)
    _raise_file_limit()
    if lifeline:
        _hold_lifeline(stop)
    try:
        sockets = open_sockets(
            settings.control or default_control_socket(), settings.listen, or_free_port=listen_is_default
        )
    except ListenError as error:
        raise StartError(str(error)) from error
    try:
        model = await _unless_stopped(_load_model(settings), stop)
        if model is not None:
            await _run(settings, model, sockets, stop)
    except ModelError as error:
        raise StartError(str(error).replace("\n", " ")) from error
    finally:
        sockets.close()
    return 0


async def _run(settings: ServerSettings, model: LoadedModel, sockets: Sockets, stop: StopSignal) -> None:
    clock = PacedClock(settings.speed) if settings.deployment is not None else None
    fleet = Fleet(settings) if clock is None else _simulated(settings, model, clock)
    operations = Operations(time.time, lambda operation: _announce(fleet, operation))
    load = GatewayLoad(lambda: gateway.connections)
    app = build_gateway(
        fleet, model.tokenizer, model_name=model.name, context_length=model.context_length, load=load
    )
    marked = app if settings.deployment is None else MarkSimulated(app, str(settings.deployment))
    gateway = Listener(marked, sockets.gateway)
    context = Context(
        fleet=fleet,
        tokenizer=model.tokenizer,
        operations=operations,
        injector=Injector(fleet, model.tokenizer, operations, model.context_length),
        gateway_status=lambda: load.status(sockets.gateway_url),
        server_version=_version(),
    )
    recorder = Recorder(context, max_bytes=settings.recorder_mib << 20) if settings.recorder_mib else None
    keeping = Keeping(recorder, settings.replicas, fleet.status)
    context.recorder, context.history = keeping.recorder, keeping.history
    # Only the owner of the process can open its socket, and the owner may do everything.
    control = Listener(build_control(context, lambda _scope: "admin"), sockets.control)
    load.start()
    try:
        if clock is not None:
            clock.start()
        await fleet.start()
        keeping.start()
        await gateway.start()
        await control.start()
        _say_listening(sockets)
        await _until_stopped(fleet, stop)
    finally:
        _leave_anyway_after(stop.drain_s + END_S)
        await operations.close()
        await keeping.close()
        await fleet.stop(stop.drain_s)
        if clock is not None:
            await clock.stop()
        context.stopping.set()
        await asyncio.gather(gateway.close(), control.close())
        await load.close()


def _simulated(settings: ServerSettings, model: LoadedModel, clock: PacedClock) -> Fleet:
    return simulated_fleet(
        settings,
        clock,
        wall=time.time,
        achieved_speed=lambda: clock.achieved_speed,
        vocabulary=ordinary_tokens(model.tokenizer),
    ).fleet


async def _load_model(settings: ServerSettings) -> LoadedModel:
    """Of a model that is simulated only the name and the context: text is cut into tokens by another's
    tokenizer."""
    name = settings.replica.model
    path = await (fetch_model(name) if name == DEFAULT_MODEL else asyncio.to_thread(resolve, name))
    model = await asyncio.to_thread(_read_model, name, path)
    deployment = settings.deployment
    if deployment is None:
        return model
    return replace(model, name=served_model(settings), context_length=deployment.model.context_length)


def _read_model(name: str, path: Path) -> LoadedModel:
    source = open_source(path)
    return LoadedModel(
        name=model_name(name),
        context_length=read_architecture(source).context_length,
        tokenizer=Tokenizer(source),
    )


async def _unless_stopped(work: Coroutine[Any, Any, T], stop: StopSignal) -> T | None:
    """The result of ``work``, or None when the process was asked to end first; then ``work`` is cancelled."""
    task = asyncio.ensure_future(work)
    asked = asyncio.create_task(stop.asked.wait())
    await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.wait({task})
    return None


async def _until_stopped(fleet: Fleet, stop: StopSignal) -> None:
    """StartError when every replica has died before one of them was ever ready."""
    deaths: dict[str, str] = {}
    while not fleet.ready and not stop.asked.is_set():
        for replica in fleet.status().replicas:
            if replica.state in ("failed", "restarting"):
                deaths[replica.id] = replica.error or "unknown error"
        if deaths.keys() == set(fleet.replica_ids()):
            stop.drain_s = 0.0
            raise StartError("no replica could start: " + "; ".join(sorted(set(deaths.values()))))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_POLL_S):
                await stop.asked.wait()
    await stop.asked.wait()


def _hear_signals(stop: StopSignal) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.on_signal, number)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # started with nohup
        loop.add_signal_handler(signal.SIGHUP, stop.on_signal, signal.SIGHUP)


def _raise_file_limit() -> None:
    """Every connection is a file; running out of them would fail those who are connected already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _hold_lifeline(stop: StopSignal) -> None:
    """Stop when stdin ends: whoever started this process holds its other end, and is gone however it died."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        try:
            data = os.read(STDIN, 4096)
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(STDIN)
            log.info("the lifeline ended: stopping")
            stop.on_parent_gone()

    try:
        loop.add_reader(STDIN, readable)
    except OSError as error:
        raise StartError("--lifeline needs a pipe as stdin") from error


def _leave_anyway_after(seconds: float) -> None:
    """A last resort against an end that hangs. The replicas see their pipes close and end by themselves."""

    def leave() -> None:
        log.error("the server did not end in time: leaving")
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def _say_listening(sockets: Sockets) -> None:
    """One line on stdout for whoever started this process; it may not be interested."""
    line = {"control": sockets.control_url, "gateway": sockets.gateway_url, "pid": os.getpid()}
    try:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    except OSError:
        log.info("nobody reads stdout")
    log.info("listening: control %s, gateway %s", sockets.control_url, sockets.gateway_url)


def _announce(fleet: Fleet, operation: Operation) -> None:
    """A change of an operation's phase is an event. User text (its reason) stays out of the message."""
    fleet.feed.event(
        "operation",
        replica=operation.target if operation.target in fleet.replica_ids() else None,
        reason=operation.phase,
        operation=operation.id,
        actor=operation.actor or None,
        message=f"{operation.kind} {operation.target} {operation.phase}"
        + (f": {operation.message}" if operation.message else ""),
    )


def _version() -> str:
    try:
        return metadata.version("infer-console")
    except metadata.PackageNotFoundError:
        return "unknown"
