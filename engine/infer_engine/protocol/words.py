"""The words that documents are made of: states, kinds, roles."""

from typing import Literal

PROTOCOL_VERSION = 1


ReplicaState = Literal[
    "starting", "ready", "draining", "drained", "fenced", "stopping", "failed", "restarting"
]


Health = Literal["ok", "idle", "stalled", "bad"]


RequestState = Literal["waiting", "running", "finished"]


Phase = Literal["prefill", "decode"]


BlockState = Literal["free", "cached", "used"]


Tier = Literal["interactive", "batch"]


FinishReason = Literal["stop", "length", "cancelled", "error"]


PreemptMode = Literal["swap", "recompute"]


#: How to preempt: auto takes the cheaper way.
PreemptChoice = Literal["auto", "swap", "recompute"]


#: Why a request waits. ``behind`` names the request it waits behind in its own field.
WaitingReason = Literal[
    "kv",
    "headroom",
    "token_budget",
    "slots",
    "tier",
    "tenant",
    "long_prefill",
    "draining",
    "loading",
    "behind",
]


EventKind = Literal[
    "admit", "finish", "preempt", "cache_evict", "move", "reject", "replica", "operation", "traffic"
]


#: What happens to a request. ``received``: its whole body is there; ``queued``: a replica was sent it;
#: ``moved``: like routed, but it had been on another replica; ``resumed``: admitted again after a preemption;
#: ``held``: no replica has it; ``first_byte``: of the answer, given to the connection.
TimelineKind = Literal[
    "arrived",
    "received",
    "authenticated",
    "tokenized",
    "held",
    "routed",
    "moved",
    "queued",
    "admitted",
    "resumed",
    "prefill",
    "first_token",
    "first_byte",
    "preempted",
    "finished",
]


#: ``unknown``: no server says so, but who watched one that was restarted before the operation had ended.
OperationPhase = Literal["pending", "running", "succeeded", "failed", "cancelled", "unknown"]


DrainMode = Literal["migrate", "wait", "cancel"]


#: What a caller of the control API may do, in rising order; ``content`` reads generated text.
Role = Literal["viewer", "content", "operator", "admin"]
