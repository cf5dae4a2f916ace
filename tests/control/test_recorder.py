"""The flight recorder: a recording of it is the stream itself, within its bound; a cut one is readable."""

import asyncio
import io
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from infer_console.recording import Header, RecordingError, RecordingReader, RecordingWriter
from infer_console.state.fold import ConsoleState
from infer_console.state.picture import Picture
from infer_engine.control import recorder as recorder_module
from infer_engine.control.context import Context
from infer_engine.control.history import HistoryKeeper
from infer_engine.control.operations import Operations
from infer_engine.control.recorder import SEGMENT_S, TIMELINES_SHARE, Recorder
from infer_engine.control.watch import WatchSession
from infer_engine.control.watch_query import Query
from infer_engine.fleet.fleet import Fleet
from infer_engine.protocol import Aside, Replica, Status, Timeline, TimelineAside, Totals
from msgspec import structs
from support.folding import fold_all
from support.simulated_fleet import SimulatedBench, arrivals, run
from support.watching import envelopes


class Server:
    """What a recorder and a watcher read of a server."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.operations = Operations(fleet.feed.wall, lambda _: None)
        self.server_version = "test"
        self.capabilities: list[str] = []
        self.sequence = iter(range(1, 1_000_000))
        self.stopping = asyncio.Event()

    def watched(self) -> Status:
        return self.fleet.status()


def shown(picture: Picture) -> dict[str, object]:
    """Without the link, and without what a clock or a sampler adds."""
    return {
        name: (each.status.kv, each.rows.keys(), each.order, each.blocks and each.blocks.kinds, each.step)
        for name, each in picture.replicas.items()
    } | {"held": picture.held, "operations": picture.operations, "events": picture.events[-50:]}


def test_live_is_replay_at_now(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        server, loop = Server(bench.fleet), asyncio.get_running_loop()
        recorder = Recorder(server, clock=loop.time, wall=bench.fleet.feed.wall)
        recording = asyncio.create_task(recorder.run())
        requests = await bench.play(arrivals(3, 60, 1.0, most_prompt=1_000))
        await bench.finished(*requests[:40])
        await asyncio.sleep(2.0)
        recorder.tick()
        session = WatchSession(server, Query(hz=20.0), clock=loop.time, wall=bench.fleet.feed.wall)
        stream = session.messages()
        live = ConsoleState("live")
        for envelope in envelopes(await anext(stream)):
            assert live.fold(envelope, 0.0)
        await stream.aclose()
        replayed = ConsoleState("replay")
        file = io.BytesIO(b"".join(recorder.recording(None, None)))
        reader = RecordingReader(file)
        assert fold_all(replayed, reader.envelopes()) > 0
        assert not reader.is_truncated
        assert reader.header.simulated
        assert shown(replayed.picture(0.0, 0.0)) == shown(live.picture(0.0, 0.0))
        recording.cancel()
        with pytest.raises(asyncio.CancelledError):
            await recording
        await server.operations.close()

    run(drill, tmp_path, replicas=2, kv_blocks=600)


async def test_it_keeps_within_its_bound_and_says_what_it_covers(context: Context) -> None:
    now_s = 0.0
    recorder = Recorder(context, max_bytes=60_000, clock=lambda: now_s, wall=lambda: 1_000 + now_s)
    for _ in range(200):
        recorder.tick()
        for number in range(50):
            context.fleet.feed.event("traffic", reason=f"{now_s}-{number}")
        now_s += SEGMENT_S / 4
    status = recorder.status()
    assert status.bytes <= 60_000
    assert status.from_at is not None
    assert status.from_at > 1_000
    assert status.until_at == 1_000 + now_s - SEGMENT_S / 4
    whole = sum(map(len, recorder.recording(None, None)))
    part = sum(map(len, recorder.recording(status.until_at - 1, None)))
    assert 0 < part < whole


async def test_what_it_keeps_takes_the_memory_that_it_counts(context: Context) -> None:
    now_s = 0.0
    recorder = Recorder(context, clock=lambda: now_s, wall=lambda: 1_000 + now_s)
    tracemalloc.start()
    try:
        for _ in range(100):
            recorder.tick()
            for number in range(200):
                context.fleet.feed.event("traffic", reason=f"{now_s}-{number}")
            now_s += SEGMENT_S / 4
        here = tracemalloc.Filter(True, recorder_module.__file__)
        kept = tracemalloc.take_snapshot().filter_traces([here]).statistics("filename")
    finally:
        tracemalloc.stop()
    assert 0 < kept[0].size < 2 * (recorder.status().bytes or 0)


def test_a_cut_recording_is_readable_up_to_there(context: Context) -> None:
    recorder = Recorder(context, clock=lambda: 0.0, wall=lambda: 1.0)
    file = io.BytesIO()
    lines = _lines(b"".join(recorder_frames(recorder)))
    with RecordingWriter(file, Header(epoch="e")) as writer:
        for line in lines * 3:
            writer.write(line)
            writer.flush()
    whole = list(RecordingReader(io.BytesIO(file.getvalue())).envelopes())
    assert len(whole) == 3 * len(lines)
    cut = list(RecordingReader(io.BytesIO(file.getvalue()[:-20])).envelopes())
    assert cut == whole[: len(cut)]
    assert len(whole) - 1 <= len(cut) + 1


def test_that_a_recording_was_cut_is_told_wherever_that_was_within_a_frame() -> None:
    file, ends = io.BytesIO(), [0]
    with RecordingWriter(file, Header(epoch="e")) as writer:
        for number in (1, 2, 400):  # the last, of letters all alike, has blocks of other kinds
            writer.aside(b'{"n":%d,"x":"%s"}' % (number, b"x" * number * number * 7))
            writer.flush()
            ends.append(file.tell())
    content = file.getvalue()
    for cut in range(ends[1], len(content) + 1):
        reader = RecordingReader(io.BytesIO(content[:cut]))
        assert list(reader.messages()) == []
        assert reader.is_truncated == (cut not in ends), (cut, ends)
    skippable = (0x184D2A51).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
    for missing in range(4):
        reader = RecordingReader(io.BytesIO(content + skippable[: len(skippable) - missing]))
        assert list(reader.messages()) == []
        assert reader.is_truncated == (missing > 0)


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"hello",
        b"\x28\xb5\x2f\xfd",
        zstandard.compress(b"{}\n"),
        zstandard.compress(b'{"epoch":"e","seq":1,"prev":0,"at":1.0,"delta":{"type":"reset"}}\n'),
        zstandard.compress(b'{"recording":"1"}\n'),
        zstandard.compress(b'{"recording":2,"marks":"of another kind"}\n'),
    ],
)
def test_what_is_no_recording_is_refused(given: bytes) -> None:
    with pytest.raises(RecordingError):
        RecordingReader(io.BytesIO(given))


def recorder_frames(recorder: Recorder) -> list[bytes]:
    recorder.tick()
    return list(recorder.recording(None, None))


def _lines(compressed: bytes) -> list[str]:
    import zstandard

    reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(compressed), read_across_frames=True)
    return reader.read().decode().splitlines()[1:]


def test_history_says_what_was_and_when_it_was_not_known() -> None:
    now_at = 1_000.0
    keeper = HistoryKeeper(2.0, lambda: now_at)
    fleet = structs.replace(Totals(replicas=1, ready=1), running=4)
    for running in (4, 6, None, 8):
        totals = structs.replace(fleet, running=running)
        keeper.sample(Status(fleet=None, replicas=[Replica(id="r0", state="ready")], totals=totals))  # type: ignore[arg-type]
        now_at += 2.0
    now_at += 4.0  # two samples were missed
    keeper.sample(Status(fleet=None, replicas=[], totals=fleet))  # type: ignore[arg-type]
    history = keeper.document(3_600, 4.0, ["r0"], simulated=False)
    assert history.step_s == 4.0
    assert history.fleet["running"] == [5.0, 8.0, None, 4.0]
    assert history.replicas == {}


def test_timelines_of_the_requests_come_with_it(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        server, loop = Server(bench.fleet), asyncio.get_running_loop()
        recorder = Recorder(server, clock=loop.time, wall=bench.fleet.feed.wall)
        recording = asyncio.create_task(recorder.run())
        requests = await bench.play(arrivals(3, 40, 1.0, most_prompt=1_000))
        await bench.finished(*requests[:20])
        await asyncio.sleep(2.0)

        def told(**parts: bool) -> tuple[dict[str, Timeline], int]:
            found: list[Aside] = []
            content = b"".join(recorder.recording(None, None, **parts))
            messages = sum(1 for _ in RecordingReader(io.BytesIO(content), found.append).messages())
            return {
                each.timeline.request: each.timeline for each in found if isinstance(each, TimelineAside)
            }, messages

        whole, messages = told()
        alone, none = told(messages=False)
        assert whole == alone
        assert messages > none == 0
        assert {each.id for each in requests} <= whole.keys()
        ended = whole[requests[0].id]
        log = bench.fleet.timelines.find(requests[0].id)
        assert log is not None
        assert ended == log.document(requests[0].id, bench.fleet.moment, simulated=True)
        assert ended.entries[-1].kind == "finished"
        recording.cancel()
        with pytest.raises(asyncio.CancelledError):
            await recording
        await server.operations.close()

    run(drill, tmp_path, replicas=2, kv_blocks=600)


def test_timelines_take_their_share_of_the_memory_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "TIMELINES_PER_S", 1_000)
    monkeypatch.setattr(recorder_module, "MOST_LIVE", 0)

    async def drill(bench: SimulatedBench) -> None:
        server, loop = Server(bench.fleet), asyncio.get_running_loop()
        small = 40_000
        recorder = Recorder(server, max_bytes=small, clock=loop.time, wall=bench.fleet.feed.wall)
        recorder.tick()
        requests = await bench.play(arrivals(3, 60, 1.0, most_prompt=100))
        for request in requests:
            await bench.finished(request)
            recorder.tick()
        assert recorder._aside_bytes <= small * TIMELINES_SHARE
        assert recorder._aside_bytes == sum(each.asides.bytes for each in recorder._segments)
        assert recorder._bytes == sum(each.bytes for each in recorder._segments)
        await server.operations.close()

    run(drill, tmp_path, replicas=1, kv_blocks=600)
