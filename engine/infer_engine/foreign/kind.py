"""Which servers there are that are not ours."""

from typing import Literal

#: auto finds out which one it is.
ForeignKind = Literal["vllm", "sglang", "llamacpp", "auto"]
