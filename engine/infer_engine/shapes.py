"""What of a model and of a GPU decides memory and time."""

from dataclasses import dataclass, replace


class PlanError(ValueError):
    """An unknown name, or a model that does not fit; ``str()`` says what was given and what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What of a model decides memory and time."""

    name: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    parameters: int
    vocab_size: int
    context_length: int
    weight_bytes_per_parameter: float = 2.0
    kv_bytes_per_element: float = 2.0
    #: Those that one token meets, where there are experts and it does not meet all; None for all of them.
    active_parameters: int | None = None

    @property
    def weight_bytes(self) -> int:
        return int(self.parameters * self.weight_bytes_per_parameter)

    @property
    def kv_bytes_per_token_and_layer(self) -> int:
        """K and V, for the KV heads (not the query heads)."""
        return int(2 * self.kv_heads * self.head_dim * self.kv_bytes_per_element)

    @property
    def kv_bytes_per_token(self) -> int:
        return self.kv_bytes_per_token_and_layer * self.layers

    def without_gqa(self) -> "ModelShape":
        """The same model if every query head had its own K and V."""
        return replace(self, kv_heads=self.heads)

    def with_weight_bytes(self, per_parameter: float) -> "ModelShape":
        """The same model with weights of another type: 1 for fp8, 0.5 for int4, 4 for fp32."""
        return replace(self, weight_bytes_per_parameter=per_parameter)

    def with_kv_bytes(self, per_element: float) -> "ModelShape":
        """The same model with another KV type: 1 for fp8, 4 for fp32."""
        return replace(self, kv_bytes_per_element=per_element)

    def flops(self, start: int, count: int) -> float:
        """FLOPs for tokens ``start .. start + count`` of one sequence: two for each parameter and token, and
        attention, where each token meets all before it and itself (so a prompt costs with its square)."""
        return self.flops_of(count, pairs_of(start, count))

    def flops_of(self, tokens: int, pairs: float) -> float:
        """FLOPs for ``tokens`` tokens, of one sequence or several, that meet ``pairs`` tokens in all."""
        parameters = self.active_parameters or self.parameters
        return 2.0 * parameters * tokens + self.attention_flops_per_pair * pairs

    @property
    def attention_flops_per_pair(self) -> float:
        """FLOPs of all layers where one token meets another: its product with the other's K, and the sum
        over the other's V."""
        return 4.0 * self.layers * self.heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU's data sheet: HBM, its bandwidth, dense bf16 matrix rate."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    flops_per_s: float
    #: To and from host memory, one way: PCIe 4 or 5 with 16 lanes, or what there is instead.
    host_bytes_per_s: float

    @property
    def balance_flops_per_byte(self) -> float:
        """FLOPs for each byte read at which compute and memory take equally long. Decode does about one FLOP
        per weight byte and sequence (fp16), so below this batch size it waits for memory."""
        return self.flops_per_s / self.bandwidth_bytes_per_s


def pairs_of(start: int, count: int) -> float:
    """How many tokens the tokens ``start .. start + count`` of one sequence meet in attention: each all
    before it, and itself."""
    return count * (start + (count + 1) / 2)
