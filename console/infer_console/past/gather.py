"""What a recording has beside its messages, asked of a server: requests' timelines, records of the audit."""

import io
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from infer_engine.protocol import Aside

from infer_console.past.kept import audit_lines
from infer_console.recording import RecordingReader
from infer_console.sources.audit import records_of
from infer_console.sources.client import EngineClient
from infer_console.sources.failures import RefusedError

#: Of the timelines of one time, compressed; of the audit.
MOST_BYTES = 8 * 1024 * 1024
MOST_RECORDS = 5_000

_encoder = msgspec.json.Encoder()


async def gather(
    client: EngineClient, from_at: float | None, to_at: float | None, *, timelines: bool = True
) -> AsyncGenerator[bytes]:
    """Lines of that time. Who may not read the audit gets none of it, and a server that does not keep
    timelines none of them. Raises UnreachableError, NotUnderstoodError."""
    if timelines and "timelines" in (await client.hello()).capabilities:
        for line in await _timelines(client, from_at, to_at):
            yield line
    try:
        page = await records_of(client, from_at, to_at, MOST_RECORDS)
    except RefusedError:
        return
    for line in audit_lines(page.records):
        yield line


async def _timelines(client: EngineClient, from_at: float | None, to_at: float | None) -> list[bytes]:
    content = bytearray()
    try:
        async with aclosing(client.recording(from_at, to_at, timelines_only=True)) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > MOST_BYTES:
                    break  # what is there is readable up to there
    except RefusedError:
        return []  # it does not record
    asides: list[Aside] = []
    for _ in RecordingReader(io.BytesIO(bytes(content)), asides.append).messages():
        pass
    return [_encoder.encode(aside) for aside in asides]
