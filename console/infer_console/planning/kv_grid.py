"""The KV grid of one sequence: columns are tokens, rows are layers. Prefill fills it in one pass, and every
decode step adds one column in all layers."""

from dataclasses import dataclass

from infer_engine.planner import Deployment
from infer_engine.settings import ReplicaSettings

from infer_console.state.picture import Picture

#: Decode steps that are played, at most.
MOST_STEPS = 256


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """What one step reads, and how long that takes: a floor. Its own column is read too."""

    number: int
    #: Of the token that it adds; both count from 0.
    column: int
    block: int
    kv_read_bytes: int
    kv_s: float
    weight_bytes: int
    weights_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class KvGrid:
    deployment: Deployment
    #: Of the prompt.
    prompt: int
    steps: int
    block_size: int

    @property
    def tokens(self) -> int:
        return self.prompt + self.steps

    @property
    def layers(self) -> int:
        return self.deployment.model.layers

    @property
    def layer_bytes(self) -> int:
        """Of all tokens in one layer."""
        return self.tokens * self.deployment.model.kv_bytes_per_token_and_layer

    @property
    def kv_bytes(self) -> int:
        return self.tokens * self.deployment.model.kv_bytes_per_token

    @property
    def blocks(self) -> int:
        return -(-self.tokens // self.block_size)

    @property
    def free_slots(self) -> int:
        """Of the last block."""
        return self.blocks * self.block_size - self.tokens

    @property
    def held_bytes(self) -> int:
        """Of whole blocks: nobody else can have their free slots."""
        return self.blocks * self.block_size * self.deployment.model.kv_bytes_per_token

    @property
    def prefill_s(self) -> float:
        return self.deployment.prefill_s(self.prompt)

    def step(self, number: int) -> DecodeStep:
        """From 1 on."""
        tokens, model = self.prompt + number, self.deployment.model
        bandwidth = self.deployment.bandwidth_bytes_per_s
        return DecodeStep(
            number=number,
            column=tokens - 1,
            block=(tokens - 1) // self.block_size,
            kv_read_bytes=tokens * model.kv_bytes_per_token,
            kv_s=tokens * model.kv_bytes_per_token / bandwidth,
            weight_bytes=model.weight_bytes,
            weights_s=model.weight_bytes / bandwidth,
            step_s=self.deployment.decode_step_s(1, tokens),
        )


def block_size_of(picture: Picture, replica: str | None) -> tuple[int, bool]:
    """Of the replica that is looked at, else of the first that tells it, and True; else the engine's default,
    and False."""
    looked_at = picture.replicas.get(replica) if replica is not None else None
    for each in [looked_at] if looked_at is not None else picture.replicas.values():
        if each.status.kv.block_size:
            return each.status.kv.block_size, True
    return ReplicaSettings().block_size, False
