"""A module in the place of ``ray``, as far as the driver and its hosts use it: the suite does without Ray,
and ``make test-ray`` runs the same code on the real one."""

import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
from infer_engine.replica.ray_messages import Began, Exit, Hello

FRESH = ("ray", "ray.exceptions", "infer_engine.replica.ray_driver", "infer_engine.replica.ray_host")


class FakeRayError(Exception):
    """ray.exceptions.RayError."""


class FakeActor:
    """Each answer can be held back; ``sent`` is all that its methods were given."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.sent: list[object] = []
        self.killed = False
        self.stopped: list[str] = []
        loop = asyncio.get_running_loop()
        self.placed: asyncio.Future[str] = loop.create_future()
        self.exit: asyncio.Future[str] = loop.create_future()

    def place(self, node: str) -> None:
        hello = Hello(node=node, version="1", public="ab" * 32)
        self.placed.set_result(msgspec.json.encode(hello).decode())

    def end(self, code: int) -> None:
        last = Exit(code=code, oom=False, log_tail="its last line")
        self.exit.set_result(msgspec.json.encode(last).decode())

    def die(self, text: str) -> None:
        for answer in (self.placed, self.exit):
            if not answer.done():
                answer.set_exception(FakeRayError(text))
                answer.exception()  # nobody may be waiting for this one

    def __getattr__(self, name: str) -> Any:
        if name not in ("hello", "run", "wait", "stop", "kill", "cpu_s"):
            raise AttributeError(name)
        return SimpleNamespace(remote=lambda *given: self._answer(name, given))

    async def _answer(self, name: str, given: tuple[object, ...]) -> object:
        self.sent += given
        if name == "hello":
            return await asyncio.shield(self.placed)
        if name == "run":
            return msgspec.json.encode(Began(pid=77)).decode()
        if name == "wait":
            return await asyncio.shield(self.exit)
        if name == "cpu_s":
            return 1.5
        self.stopped.append(name)
        if not self.exit.done():
            self.end(0 if name == "stop" else -9)
        return True


class FakeModule(ModuleType):
    """Its actors, in the order they were made; ``loop`` is where they live."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.actors: list[FakeActor] = []
        self.loop: asyncio.AbstractEventLoop | None = None
        self.before_made: Callable[[], None] = lambda: None
        self.init_error: Exception | None = None
        self.inits: list[dict[str, Any]] = []
        self.util = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.1")

    def init(self, **given: Any) -> None:
        self.inits.append(given)
        if self.init_error is not None:
            raise self.init_error

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="10.0.0.1:6379", get_node_id=lambda: "n1")

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": "n1", "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 4.0}, "Alive": True},
            {"NodeID": "n2", "NodeManagerAddress": "10.0.0.2", "Resources": {}, "Alive": False},
        ]

    def remote(self, _host: type) -> Any:
        return SimpleNamespace(options=lambda **given: SimpleNamespace(remote=lambda: self._make(given)))

    def kill(self, actor: FakeActor) -> None:
        actor.killed = True

    def _make(self, options: dict[str, Any]) -> FakeActor:
        """In a thread, as Ray's own may block."""
        self.before_made()
        assert self.loop is not None

        async def make() -> FakeActor:
            actor = FakeActor(options)
            self.actors.append(actor)
            return actor

        return asyncio.run_coroutine_threadsafe(make(), self.loop).result()


@contextmanager
def in_place_of_ray() -> Generator[FakeModule]:
    """Within, ``infer_engine.replica.ray_driver`` can be imported, and is forgotten afterwards."""
    kept = {name: sys.modules.pop(name, None) for name in FRESH}
    exceptions: Any = ModuleType("ray.exceptions")
    exceptions.RayError = FakeRayError
    module = FakeModule()
    sys.modules.update({"ray": module, "ray.exceptions": exceptions})
    try:
        yield module
    finally:
        for name, old in kept.items():
            sys.modules.pop(name, None)
            if old is not None:
                sys.modules[name] = old
