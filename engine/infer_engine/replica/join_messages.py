"""What a replica that joins by itself and the server say to each other before and beside its work: msgpack,
one struct a message, over the link over TCP.

The process that joins (see ``joiner``) has a connection of its own. Behind it a worker lives, talks to the
server as any replica does, and dies; its parent stays, says so, and joins again.
"""

import msgspec
from msgspec import Struct

from infer_engine.replica.wire import MalformedError
from infer_engine.settings import ReplicaSettings

#: Another one is told so, and not let in.
JOIN_VERSION = 1
#: An id that may be asked for.
ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}"
MOST_HOST_CHARACTERS = 64
#: Of a sentence, either way.
MOST_CHARACTERS = 500


class Knock(Struct, frozen=True, kw_only=True, tag="knock"):
    """The first word. Answered by Terms, or TurnedAway."""

    version: int
    host: str
    pid: int
    #: The id that it would have; None takes any.
    replica: str | None = None


class Join(Struct, frozen=True, kw_only=True, tag="join"):
    """It has the model: what tells whether it is the same. Answered by Welcome, or TurnedAway."""

    model: dict[str, str]


class LifeEnded(Struct, frozen=True, kw_only=True, tag="ended"):
    """The worker of this life is gone. ``code``: its exit code, negative the signal."""

    incarnation: int
    code: int
    #: Whether the kernel killed somebody there meanwhile for want of memory; None where that is not told.
    oom: bool | None = None


class Leave(Struct, frozen=True, kw_only=True, tag="leave"):
    """It is to go for good: what it has goes on elsewhere. Answered by EndLife."""

    within_s: float


FromJoiner = Knock | Join | LifeEnded | Leave


class Terms(Struct, frozen=True, kw_only=True, tag="terms"):
    """What the fleet's replicas are like."""

    settings: ReplicaSettings


class Welcome(Struct, frozen=True, kw_only=True, tag="welcome"):
    replica: str
    incarnation: int
    #: Of the connection of its worker.
    ticket: str


class TurnedAway(Struct, frozen=True, kw_only=True, tag="turned-away"):
    """``final``: the same would be said again, however often it asks. ``other_id``: with another id it might
    come in."""

    why: str
    final: bool = False
    other_id: bool = False


class EndLife(Struct, frozen=True, kw_only=True, tag="end-life"):
    """The worker of this life is to be killed where it still lives."""

    incarnation: int
    why: str


ToJoiner = Terms | Welcome | TurnedAway | EndLife

_encoder = msgspec.msgpack.Encoder()
_from_joiner: msgspec.msgpack.Decoder[FromJoiner] = msgspec.msgpack.Decoder(FromJoiner)
_to_joiner: msgspec.msgpack.Decoder[ToJoiner] = msgspec.msgpack.Decoder(ToJoiner)


def encode_join(message: FromJoiner | ToJoiner) -> bytes:
    return _encoder.encode(message)


def decode_from_joiner(data: bytes) -> FromJoiner:
    try:
        return _from_joiner.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise MalformedError(str(error)) from error


def decode_to_joiner(data: bytes) -> ToJoiner:
    try:
        return _to_joiner.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise MalformedError(str(error)) from error
