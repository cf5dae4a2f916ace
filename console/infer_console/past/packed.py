"""What a segment that is over has beside its messages, as bytes: a thousand events as objects take most of a
megabyte, and lie between what comes and goes, so that no page of it is ever given back."""

import pickle
from collections.abc import Sequence

import msgspec
import zstandard
from infer_engine.protocol import Event

from infer_console.diagnosis.judge import Judge

Told = list[tuple[float, Event]]
#: A fifth smaller than with zstd's own 3, for 5 ms instead of 1 for a MB; higher ones give little.
LEVEL = 9

_encoder = msgspec.json.Encoder()
_told = msgspec.json.Decoder(Told)


def pack_events(events: Sequence[tuple[float, Event]]) -> bytes:
    """With the moments at which they were told."""
    return small(_encoder.encode(events)) if events else b""


def unpack_events(packed: bytes) -> Told:
    return _told.decode(zstandard.decompress(packed)) if packed else []


def pack_judge(judge: Judge) -> bytes:
    return small(pickle.dumps(judge, pickle.HIGHEST_PROTOCOL))


def unpack_judge(packed: bytes) -> Judge:
    """One of its own for everybody who asks. The bytes never left this process."""
    judge = pickle.loads(zstandard.decompress(packed))
    assert isinstance(judge, Judge)
    return judge


def small(content: bytes | bytearray) -> bytes:
    """Compressed, by a compressor that is gone afterwards: each keeps more than a MiB once it was used."""
    return exact(zstandard.compress(content, LEVEL))


def exact(content: bytes) -> bytes:
    """A copy without the room that compressors and encoders take for what they might have needed: half as
    much again, which stays as long as what they returned."""
    return bytes(memoryview(content))
