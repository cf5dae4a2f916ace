"""Names, sizes and codecs that both ends of the replica link share. Nothing here is ever pickled."""

import msgspec

from infer_engine.core.observe import BlockMap
from infer_engine.replica.messages import CREDIT, FromReplica, Observation, ToReplica

#: A replica sends at most CREDIT unacknowledged step reports, answers to what it was sent, and observations
#: that it leaves out when the pipe is full. Four times CREDIT each side leaves room for all, so nothing
#: blocks or drops.
REPLICA_HWM = 4 * CREDIT
#: A replica's queue, an abort for each of its requests, and some more.
SERVER_HWM = 4096
#: A larger message ends the connection: the longest prompt and a map of a million blocks stay far below.
MAX_MESSAGE_BYTES = 64 << 20
#: Over TCP: how long a peer may take to prove itself, how often it is asked whether it is there, and how
#: long it may be silent then.
HANDSHAKE_MS = 10_000
HEARTBEAT_MS = 2_000
HEARTBEAT_TIMEOUT_MS = 15_000
#: Exit code of a replica whose link over TCP is gone.
LINK_LOST = 4
#: Exit code of a replica whose settings or model cannot work, however often it is started.
WILL_FAIL_AGAIN = 3

_encoder = msgspec.msgpack.Encoder()
_from_replica = msgspec.msgpack.Decoder(FromReplica)
_to_replica = msgspec.msgpack.Decoder(ToReplica)


class MalformedError(ValueError):
    """Bytes that are no message."""


def identity(replica: str, incarnation: int) -> bytes:
    """The ZeroMQ identity of one life of a replica."""
    return f"{replica}.{incarnation}".encode()


def replica_of(identity: bytes) -> str:
    """The replica whose life it names; of what is no identity, something that is no replica."""
    return identity.rpartition(b".")[0].decode(errors="replace")


def encode(message: ToReplica | FromReplica) -> bytes:
    return _encoder.encode(message)


def decode_from_replica(data: bytes) -> FromReplica:
    try:
        message = _from_replica.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedError(str(error)) from error
    if isinstance(message, Observation) and message.blocks is not None:
        _check(message.blocks)
    return message


def _check(blocks: BlockMap) -> None:
    size = len(blocks.refs)
    if not size or any(table and max(table) >= size for _, table in blocks.tables):
        raise MalformedError(f"of a map of {size} blocks it names others")


def decode_to_replica(data: bytes) -> ToReplica:
    try:
        return _to_replica.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedError(str(error)) from error
