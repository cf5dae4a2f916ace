"""Upstreams as the fleet's replicas: launcher and link in one. Nothing is launched: a life begins with a look
for the server."""

from collections.abc import Mapping
from pathlib import Path

from infer_engine.model.tokenizer import Tokenizer
from infer_engine.replica.in_process import InProcess
from infer_engine.replica.messages import ReplicaConfig
from infer_engine.replica.upstream.life import LOOK_S, UpstreamReplica
from infer_engine.replica.upstream.target import Target


class UpstreamReplicas(InProcess[UpstreamReplica]):
    """Give ``launch`` and ``link`` to a fleet. ``targets`` are by replica; a server that makes no progress
    for ``stall_s``, by its tokens or its counters, has stalled; each is looked at every ``look_s``."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        tokenizer: Tokenizer,
        stall_s: float,
        look_s: float = LOOK_S,
    ) -> None:
        super().__init__()
        self._targets = targets
        self._tokenizer = tokenizer
        self._stall_s = stall_s
        self._look_s = look_s
        #: What each served last, by replica.
        self._served: dict[str, str] = {}

    async def launch(self, config: ReplicaConfig, _log_path: Path, _threads: int) -> UpstreamReplica:
        """OSError where there is no upstream of that name."""
        target = self._targets.get(config.replica)
        if target is None:
            raise OSError(f"no upstream is named for {config.replica}")
        replica = UpstreamReplica(
            self, config, target, self._tokenizer, self._stall_s, self._served, self._look_s
        )
        self.by_identity[replica.identity] = replica
        return replica
