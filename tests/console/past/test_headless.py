"""Recording for days: what is beyond the bounds goes, the oldest first; a server may restart meanwhile."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from infer_console.connect import parse_url
from infer_console.past.headless import HeadlessRecorder, Retention
from infer_console.recording import open_recording
from infer_console.sources.client import EngineClient
from infer_console.state.fold import ConsoleState
from infer_engine.protocol import Envelope
from support.folding import fold_all
from support.incident import RECORDING
from support.server import EngineServer, short_directory

MIB = 1024 * 1024
HOUR_S = 3600.0


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.icr"), key=lambda path: (path.stat().st_mtime_ns, path))


def recorded(path: Path) -> list[Envelope]:
    file, reader = open_recording(path)
    with file:
        found = list(reader.envelopes())
    assert not reader.is_truncated
    assert not reader.skipped
    return found


def feed(recorder: HeadlessRecorder, clock: list[float]) -> None:
    """The recorded incident as a server's messages, its time as the recorder's."""
    file, reader = open_recording(RECORDING)
    with file:
        for line, envelope in reader.messages():
            if envelope.prev == 0:
                recorder._state.opened()
            recorder._state.fold(envelope, envelope.at)
            clock[0] = envelope.at
            recorder._message(envelope, line, envelope.at)
    recorder._close()


async def test_the_oldest_files_go_when_all_are_too_many_bytes(tmp_path: Path) -> None:
    whole, pruned = tmp_path / "whole", tmp_path / "pruned"
    said: list[str] = []
    for directory, max_bytes in ((whole, 64 * MIB), (pruned, 40_000)):
        directory.mkdir()
        clock = [0.0]
        retention = Retention(max_bytes=max_bytes, max_age_s=HOUR_S * 1e6, file_s=1.0)
        async with EngineClient(parse_url("unix:///nowhere")) as client:
            feed(
                HeadlessRecorder(client, directory, retention, said.append, wall=lambda at=clock: at[0]),
                clock,
            )
    every, left = [path.name for path in files(whole)], [path.name for path in files(pruned)]
    sizes = {path.name: path.stat().st_size for path in files(whole)}
    assert sum(sizes.values()) > 2 * 40_000, "nothing had to go"
    assert left == every[-len(left) :], "not the oldest went"
    assert sum(sizes[name] for name in left) <= 40_000 + max(sizes.values())
    assert len(left) > 2
    assert [line for line in said if line.startswith("removed")] == [
        f"removed {name}, {sizes[name] / 1e6:.1f} MB" for name in every[: -len(left)]
    ]
    for path in files(pruned):
        state = ConsoleState("")
        envelopes = recorded(path)
        assert fold_all(state, envelopes) == len(envelopes), "a file does not stand on its own"
        assert state.is_whole


async def until(what: str, seen: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    while not seen():
        assert asyncio.get_running_loop().time() < deadline, f"never: {what}"
        await asyncio.sleep(0.02)


async def test_it_goes_on_after_the_servers_restart_and_tells_what_is_missing(tmp_path: Path) -> None:
    said: list[str] = []
    retention = Retention(max_bytes=64 * MIB, max_age_s=HOUR_S, file_s=HOUR_S)
    with short_directory() as directory:
        settings = {"replicas": 1, "simulate": "8b@1xh100"}
        url = f"unix://{directory}/c.sock"
        async with EngineClient(parse_url(url)) as client:
            recorder = HeadlessRecorder(client, tmp_path, retention, said.append)
            recording: asyncio.Task[None] | None = None
            for _ in range(2):
                server = EngineServer(directory, settings)
                try:
                    await asyncio.to_thread(server.wait_listening)
                    recording = recording or asyncio.create_task(recorder.run())
                    before = recorder.messages
                    await until("messages", lambda before=before: recorder.messages > before + 5)
                finally:
                    server.process.kill()
                    await asyncio.to_thread(server.stop)
            assert recording is not None
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)
    assert "connected" in said
    assert recorder.gaps == 1
    (lost,) = [line for line in said if line.startswith("lost ")]
    assert f"lost {recorder.lost_s:.1f} s, from " in lost
    assert said[-1] == f"{recorder.messages:,} messages recorded, {recorder.lost_s:.1f} s lost in 1 gap"
    recorder.unwritten = 3
    assert recorder.summary().endswith("s lost in 1 gap on the way, at least 3 messages could not be written")
    recorder.lost_s = 0.0
    assert recorder.summary().endswith("recorded, all came, at least 3 messages could not be written")
    envelopes = [envelope for path in files(tmp_path) for envelope in recorded(path)]
    assert len({envelope.epoch for envelope in envelopes}) == 2
    state = ConsoleState("")
    assert fold_all(state, envelopes) == len(envelopes)
    gap = [event for event in state.picture(0.0, 0.0).events if (event.reason or "").startswith("link")]
    # The server's last end may have been seen or not.
    assert [event.reason for event in gap[:2]] == ["link lost", "link back"]
    assert gap[1].at - gap[0].at >= recorder.lost_s
