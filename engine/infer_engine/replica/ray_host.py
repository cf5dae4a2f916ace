"""The actor of one replica, on whichever node Ray put it: it starts the same worker process as on one
machine, and holds its lifeline. However the actor dies (killed, with its node, with the server), the worker
ends with it.

All that goes in and out is text or numbers, so that Ray has nothing of ours to pickle.
"""

import os
import tempfile
from pathlib import Path

import msgspec
import ray  # pyright: ignore[reportMissingImports] - an extra

from infer_engine.replica.curve import KeyPair, new_pair
from infer_engine.replica.launch_local import LocalProcess, launch
from infer_engine.replica.messages import ReplicaConfig
from infer_engine.replica.ray_messages import Began, Exit, Hello
from infer_engine.version import version

#: Not for a process that does not speak to Ray.
SECRETS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


def _log_path() -> Path:
    """Ray's own log of this actor, where that is a file: it is in the session's directory, and Ray sees to
    its end."""
    path = Path("/proc/self/fd/2").resolve()
    return path if path.is_file() else Path(tempfile.gettempdir()) / f"infer-replica-{os.getpid()}.log"


def _json(message: msgspec.Struct) -> str:
    return msgspec.json.encode(message).decode()


class RayHost:
    """Async, so that it answers while its replica runs. ``run`` once, after ``hello``."""

    def __init__(self) -> None:
        self._pair: KeyPair = new_pair()
        self._process: LocalProcess | None = None
        self._ending = False

    async def hello(self) -> str:
        """A Hello."""
        return _json(
            Hello(
                node=str(ray.get_runtime_context().get_node_id()),
                version=version(),
                public=self._pair.public.hex(),
            )
        )

    async def run(self, config: str, threads: int) -> str:
        """A Began; ``config`` is a ReplicaConfig that lacks the secret key."""
        given = msgspec.json.decode(config, type=ReplicaConfig)
        if given.keys is not None:
            keys = msgspec.structs.replace(given.keys, secret=self._pair.secret.hex())
            given = msgspec.structs.replace(given, keys=keys)
        base = {name: value for name, value in os.environ.items() if name not in SECRETS}
        try:
            self._process = await launch(given, _log_path(), threads, base)
        except OSError as error:
            return _json(Began(error=str(error)))
        if self._ending:
            self._process.kill()
        return _json(Began(pid=self._process.pid))

    async def wait(self) -> str:
        """An Exit, once the process that ``run`` started has ended."""
        process = self._process
        if process is None:
            return _json(Exit(code=None, oom=None, log_tail=""))
        code = await process.wait()
        return _json(Exit(code=code, oom=process.oom_killed(), log_tail=process.log_tail()))

    async def stop(self) -> bool:
        """End it, kindly and then less so; False when nothing helped."""
        self._ending = True
        return self._process is None or await self._process.stop() is not None

    async def kill(self) -> None:
        self._ending = True
        if self._process is not None:
            self._process.kill()

    async def cpu_s(self) -> float | None:
        return self._process.cpu_s() if self._process is not None else None
