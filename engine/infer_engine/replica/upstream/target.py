"""One upstream as it was named: where it is, and what is said to it to be let in."""

from dataclasses import dataclass, field

from infer_engine.foreign.address import Address


@dataclass(frozen=True, slots=True)
class Target:
    """``context_length`` is that of the model whose tokenizer we use: what the server says goes before it,
    where that is less."""

    address: Address
    context_length: int
    token: str | None = field(default=None, repr=False)
