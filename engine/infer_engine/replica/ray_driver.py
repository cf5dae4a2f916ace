"""The server's hand in a Ray cluster, as a process of its own: ``python -m infer_engine.replica.ray_driver``.

Ray ends the process of a driver whose cluster is gone ("The program will terminate"), takes its SIGTERM, and
blocks where it pleases. None of that may happen to a server with streams in it; so it has this one instead,
and starts another when it is gone. Orders come on stdin and answers go to stdout, see ``ray_messages``; at
the end of stdin it ends, and Ray ends its actors.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import ray  # pyright: ignore[reportMissingImports] - an extra
from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]

from infer_engine.replica.ray_host import RayHost
from infer_engine.replica.ray_messages import (
    MAX_LINE_BYTES,
    Began,
    Connect,
    Connected,
    End,
    Ended,
    Exit,
    FromDriver,
    Hello,
    Look,
    Node,
    Nodes,
    NotConnected,
    Place,
    Placed,
    Run,
    Running,
    ToDriver,
    Usage,
)

#: How long a host may take to end its process before its actor is killed, kindly and not.
STOP_S = 8.0
KILL_S = 2.0
#: How long an answer to a small question may take.
ANSWER_S = 10.0
#: How long the cluster may take to turn away a driver without a token, which it does at once or never.
OPEN_PROBE_S = 30.0
#: A host's methods that may be under way at once.
CONCURRENCY = 16
#: Exit code of a process that was killed.
KILLED = -9
#: What Ray says of an actor that went with its node, or that its memory monitor killed.
NODE_GONE = "its node has died"
OUT_OF_MEMORY = "running low on memory"

Say = Callable[[FromDriver], None]


class Life:
    """One actor, from Place to Ended."""

    def __init__(self, key: str, say: Say) -> None:
        self._key = key
        self._say = say
        self._making: asyncio.Task[Any] | None = None
        self._actor: Any = None
        self._run: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self._runs = False
        self._end = asyncio.Event()

    async def live(self, order: Place) -> None:
        """Ends when it has ended and was said to have; its actor is gone then, or about to be."""
        work = asyncio.create_task(self._work(order))
        asked = asyncio.create_task(self._end.wait())
        await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and self._runs:
            await asyncio.wait({work}, timeout=STOP_S)
        ended = self._of(work) if work.done() else Ended(key=self._key, code=KILLED, oom=False)
        work.cancel()
        asked.cancel()
        removal = asyncio.create_task(self._remove_actor())
        await asyncio.wait({removal}, timeout=KILL_S)
        self._say(ended)
        await removal

    def _of(self, work: "asyncio.Task[Ended]") -> Ended:
        error = work.exception()
        if error is None:
            return work.result()
        if isinstance(error, RayError):
            return of_ray_error(self._key, error)
        return Ended(key=self._key, code=1, cause=f"Ray could not run it: {_one_line(error)}", oom=False)

    async def _remove_actor(self) -> None:
        """Also of one that was still being made."""
        if self._making is None:
            return
        with contextlib.suppress(RayError, ValueError):
            actor = await self._making
            await asyncio.to_thread(ray.kill, actor)

    def run(self, order: Run) -> None:
        if not self._run.done():
            self._run.set_result(order)

    async def look(self) -> None:
        if not self._runs:
            return
        with contextlib.suppress(RayError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                self._say(Usage(key=self._key, cpu_s=await self._actor.cpu_s.remote()))

    async def end(self, *, kindly: bool) -> None:
        """``live`` tells when it is over."""
        if self._runs:
            with contextlib.suppress(RayError, TimeoutError):
                async with asyncio.timeout(STOP_S if kindly else KILL_S):
                    await (self._actor.stop if kindly else self._actor.kill).remote()
        self._end.set()

    async def _work(self, order: Place) -> Ended:
        self._making = asyncio.create_task(asyncio.to_thread(_make_actor, order))
        self._actor = await asyncio.shield(self._making)
        hello = msgspec.json.decode(await self._actor.hello.remote(), type=Hello)
        nodes = {node.id: node for node in await asyncio.to_thread(living_nodes)}
        node = nodes.get(hello.node) or Node(id=hello.node, address="an unknown node", cpus=0, gpus=0)
        self._say(Placed(key=self._key, node=node, version=hello.version, public=hello.public))
        run = await self._run
        began = msgspec.json.decode(await self._actor.run.remote(run.config, run.threads), type=Began)
        if began.pid is None:
            return Ended(key=self._key, code=1, cause=f"it could not be started: {began.error}", oom=False)
        self._runs = True
        self._say(Running(key=self._key, pid=began.pid))
        last = msgspec.json.decode(await self._actor.wait.remote(), type=Exit)
        return Ended(key=self._key, code=last.code, oom=last.oom, log_tail=last.log_tail)


def of_ray_error(key: str, error: RayError) -> Ended:
    """What Ray knows of an actor that is gone."""
    text = str(error)
    if NODE_GONE in text:
        return Ended(key=key, code=KILLED, cause="its node left the Ray cluster", oom=False)
    if OUT_OF_MEMORY in text:
        return Ended(key=key, code=KILLED, cause="Ray killed it: its node ran low on memory", oom=True)
    return Ended(key=key, code=KILLED, cause=f"its Ray actor is gone: {_one_line(error)}", oom=None)


def _one_line(error: BaseException) -> str:
    """The last line that says something: Ray begins with what everybody knows."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{lines[-1][:300]} ({type(error).__name__})" if lines else type(error).__name__


def _make_actor(order: Place) -> Any:
    return (
        ray.remote(RayHost)
        .options(
            name=order.name,
            num_cpus=order.cpus,
            num_gpus=order.gpus,
            scheduling_strategy="SPREAD",
            max_restarts=0,  # the fleet's lifecycle restarts: it knows of backoff, and of requests
            max_task_retries=0,
            max_concurrency=CONCURRENCY,
        )
        .remote()
    )


def living_nodes() -> list[Node]:
    return [
        Node(
            id=node["NodeID"],
            address=node["NodeManagerAddress"],
            cpus=node["Resources"].get("CPU", 0.0),
            gpus=node["Resources"].get("GPU", 0.0),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


class Driver:
    def __init__(self, say: Say) -> None:
        self._say = say
        self._lives: dict[str, Life] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, lines: asyncio.StreamReader) -> int:
        """Until ``lines`` end. The exit code: 1 when there is no connection, and it was said why."""
        first = _decode(await lines.readline())
        if not isinstance(first, Connect):
            return 2
        answer = await asyncio.to_thread(connect, first)
        self._say(answer)
        if isinstance(answer, NotConnected):
            return 1
        while line := await lines.readline():
            self._do(_decode(line))
        return 0

    def _do(self, order: ToDriver) -> None:
        if isinstance(order, Place):
            life = self._lives[order.key] = Life(order.key, self._say)
            self._keep(self._live(life, order))
            self._keep(self._tell_nodes())
            return
        life = None if isinstance(order, Connect) else self._lives.get(order.key)
        if life is None:
            return  # it has ended meanwhile
        match order:
            case Run():
                life.run(order)
            case Look():
                self._keep(life.look())
            case End():
                self._keep(life.end(kindly=order.kindly))
            case _:
                pass

    async def _tell_nodes(self) -> None:
        with contextlib.suppress(RayError):
            self._say(Nodes(nodes=await asyncio.to_thread(living_nodes)))

    async def _live(self, life: Life, order: Place) -> None:
        try:
            await life.live(order)
        finally:
            del self._lives[order.key]

    def _keep(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def connect(order: Connect) -> Connected | NotConnected:
    try:
        ray.init(
            address=order.address,
            namespace=order.namespace,
            log_to_driver=False,
            configure_logging=False,
        )
        cluster = str(ray.get_runtime_context().gcs_address)
        if order.check_auth and takes_anyone(cluster):
            return NotConnected(
                error=f"the Ray cluster at {cluster} asks nobody for a token, so that everybody who reaches "
                "it can run code on all of its nodes: start it with RAY_AUTH_MODE=token, or set "
                "RAY_AUTH_MODE=disabled here too to use it as it is"
            )
        return Connected(address=ray.util.get_node_ip_address(), nodes=living_nodes())
    except (ConnectionError, RayError, RuntimeError, ValueError, TimeoutError) as error:
        return NotConnected(error=" ".join(str(error).split()), see_log=True)


def takes_anyone(cluster: str) -> bool:
    """Whether a driver without a token gets in: tried, since nothing in Ray tells."""
    code = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False, configure_logging=False)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_TOKEN")}
    probe = subprocess.Popen(
        [sys.executable, "-c", code, cluster],
        env={**environment, "RAY_AUTH_MODE": "disabled"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        return _got_in(probe)
    finally:
        probe.kill()
        probe.wait()


def _got_in(probe: "subprocess.Popen[str]") -> bool:
    if probe.stderr is not None:
        for line in probe.stderr:
            if "Unauthenticated" in line:  # it would go on trying for long
                return False
    try:
        return probe.wait(OPEN_PROBE_S) == 0
    except subprocess.TimeoutExpired:
        return False


def _decode(line: bytes) -> ToDriver:
    return msgspec.json.decode(line, type=ToDriver)


async def main() -> int:
    # What a library prints is no answer: it goes where the log goes.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def say(message: FromDriver) -> None:
        with contextlib.suppress(BrokenPipeError):  # the server is gone: the end of stdin tells, too
            answers.write(msgspec.json.encode(message) + b"\n")

    lines = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    return await Driver(say).serve(lines)


if __name__ == "__main__":
    # Not by way of ray.shutdown, which waits for what may be gone: Ray sees the connection end.
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)
