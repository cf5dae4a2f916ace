"""The collector against a real engine server: what it shows, what it sends, and how it ends."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future

import pytest
from infer_console.collector import Collector
from infer_console.connect import parse_url
from infer_console.diagnosis.judge import Judge
from infer_console.sending import MAX_COMMANDS, Answer
from infer_console.sources.client import EngineClient
from infer_console.sources.engine import EngineStatus
from infer_console.state.picture import USED, Picture
from infer_engine.protocol import (
    Cancel,
    CommandResult,
    Drain,
    Inject,
    Problem,
    StopInjection,
    TenantLimits,
    Undrain,
)
from support.eventually import eventually
from support.server import EngineServer, short_directory
from support.tiny_model import write_tiny_gguf

ANSWER_S = 60.0


@pytest.fixture
def collector(engine: EngineServer) -> Generator[Collector]:
    made = Collector(parse_url(engine.control_url))
    made.start()
    eventually(lambda: made.picture.link.state == "live" and len(made.picture.replicas) == 2)
    try:
        yield made
    finally:
        assert made.stop(60)


class Client:
    """A client that asks the gateway for one long completion, on its own thread."""

    def __init__(self, engine: EngineServer, tokens: int = 1500) -> None:
        self.body = {
            "prompt": "hello",
            "max_tokens": tokens,
            "ignore_eos": True,
            "model": "tiny",
            "stream": True,
        }
        self._engine = engine
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        with (
            self._engine.gateway() as http,
            http.stream("POST", "/v1/completions", json=self.body) as response,
        ):
            for _ in response.iter_bytes():
                if self._leave.is_set():
                    return

    def __enter__(self) -> "Client":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join(ANSWER_S)
        assert not self._thread.is_alive()


def ok(future: "Future[Answer]") -> CommandResult:
    answer = future.result(ANSWER_S)
    assert isinstance(answer, CommandResult), answer
    return answer


def running(picture: Picture) -> list[tuple[str, str]]:
    return [
        (name, request)
        for name, shown in picture.replicas.items()
        for request in shown.order
        if shown.rows[request].state == "running"
    ]


def test_it_shows_the_fleet_and_of_the_replicas_looked_at_rows_and_blocks(
    engine: EngineServer, collector: Collector
) -> None:
    picture = collector.picture
    assert picture.fleet is not None
    assert picture.fleet.model == "tiny"
    assert picture.totals is not None
    assert picture.totals.ready == 2
    assert "drain" in picture.capabilities
    assert {shown.status.state for shown in picture.replicas.values()} == {"ready"}
    assert all(shown.blocks is None for shown in picture.replicas.values())

    collector.set_interest(["r0"])
    eventually(lambda: collector.picture.replicas["r0"].blocks)
    assert collector.picture.replicas["r1"].status.state == "ready"
    assert collector.picture.replicas["r1"].blocks is None

    collector.set_interest(["r0", "r1"])
    with Client(engine):
        name, request = eventually(lambda: running(collector.picture))[0]

        def owned() -> bool:
            shown = collector.picture.replicas[name]
            row, blocks = shown.rows.get(request), shown.blocks
            if row is None or blocks is None or request not in blocks.owners:
                return False
            mine = [
                each for each in range(blocks.total) if blocks.owner[each] == blocks.owners.index(request)
            ]
            return len(mine) == row.kv_blocks and all(blocks.kinds[each] == USED for each in mine)

        eventually(owned)
    eventually(lambda: not running(collector.picture))
    eventually(lambda: {"admit", "finish"} <= {event.kind for event in collector.picture.events})

    collector.set_interest([])
    eventually(lambda: all(shown.blocks is None for shown in collector.picture.replicas.values()))
    assert collector.picture.link.reconnects == 0
    assert collector.picture.link.resyncs == 0


def test_it_taps_the_text_of_the_streams_that_are_watched(engine: EngineServer, collector: Collector) -> None:
    collector.set_interest(["r0", "r1"])
    with Client(engine):
        _, request = eventually(lambda: running(collector.picture))[0]
        collector.watch_streams([request, "never-was"], content=True)
        eventually(lambda: request in collector.picture.streams)
        eventually(lambda: collector.picture.streams[request].tokens > 3)
    ended = eventually(lambda: collector.picture.streams[request].finish_reason)
    assert ended == "cancelled"  # its client went away
    assert collector.picture.streams[request].text
    assert collector.picture.streams["never-was"].finish_reason == "gone"
    collector.watch_streams([])
    eventually(lambda: not collector.picture.streams)


def test_when_tokens_come_is_told_without_their_text(engine: EngineServer, collector: Collector) -> None:
    collector.set_interest(["r0", "r1"])
    with Client(engine):
        _, request = eventually(lambda: running(collector.picture))[0]
        collector.watch_streams([request])
        hidden = eventually(
            lambda: (
                shown
                if (shown := collector.picture.streams.get(request)) is not None and shown.tokens > 3
                else None
            )
        )
        assert (hidden.text, hidden.characters) == ("", ())
        assert len(hidden.gaps_s) == len(hidden.ats) == hidden.tokens
        assert hidden.heard_at is not None
        collector.watch_streams([request], content=True)
        eventually(lambda: collector.picture.streams[request].text)
        collector.watch_streams([request])
        eventually(lambda: not collector.picture.streams[request].text)
        eventually(lambda: collector.picture.streams[request].tokens > 3)
        assert collector.picture.streams[request].text == ""


def test_all_requests_and_a_timeline_are_asked_for_while_somebody_looks(
    engine: EngineServer, collector: Collector
) -> None:
    assert collector.picture.listing is None
    collector.list_requests(True)
    with Client(engine):
        listing = eventually(
            lambda: shown if (shown := collector.picture.listing) is not None and shown.rows else None
        )
        request = listing.rows[0].id
        collector.watch_timeline(request)
        eventually(lambda: (shown := collector.picture.timeline) is not None and shown.timeline is not None)

    def entries() -> list[str]:
        shown = collector.picture.timeline
        return [each.kind for each in shown.timeline.entries] if shown is not None and shown.timeline else []

    kinds = eventually(lambda: found if "finished" in (found := entries()) else None)
    assert (
        kinds.index("arrived") < kinds.index("routed") < kinds.index("admitted") < kinds.index("first_token")
    )
    eventually(lambda: (shown := collector.picture.listing) is not None and not shown.rows)
    ended = eventually(lambda: (shown := collector.picture.listing) is not None and shown.ended)
    assert request in {row.id for row in ended if row.ttft_s is not None}
    collector.watch_timeline("never-was")
    eventually(
        lambda: (shown := collector.picture.timeline) is not None and "no such request" in shown.message
    )
    collector.watch_demand(True)
    told = eventually(
        lambda: (
            shown if (shown := collector.picture.demand) is not None and shown.limits is not None else None
        )
    )
    assert (told.waiting, told.limits, told.default_limits) == ((), {}, TenantLimits())
    collector.watch_demand(False)
    eventually(lambda: collector.picture.demand is None)
    collector.watch_timeline(None)
    collector.list_requests(False)
    eventually(lambda: collector.picture.timeline is None and collector.picture.listing is None)


def test_commands_get_their_result_or_the_problem(engine: EngineServer, collector: Collector) -> None:
    assert ok(collector.command(Drain(dry_run=True), "r0")).operation is None
    problem = collector.command(Undrain(), "r99").result(ANSWER_S)
    assert isinstance(problem, Problem)
    assert (problem.status, problem.code) == (404, "unknown_replica")

    drained = ok(collector.command(Drain(actor="test"), "r0")).operation
    assert drained is not None
    eventually(lambda: collector.picture.replicas["r0"].status.state == "drained")
    operations = eventually(
        lambda: [
            each
            for each in collector.picture.operations
            if each.id == drained.id and each.phase == "succeeded"
        ]
    )
    assert operations[0].actor == f"uid:{os.getuid()} (test)"
    assert "drained" in {alarm.rule for alarm in collector.picture.alarms}
    ok(collector.command(Undrain(), "r0"))
    eventually(lambda: collector.picture.replicas["r0"].status.state == "ready")


def test_test_traffic_starts_shows_and_stops(engine: EngineServer, collector: Collector) -> None:
    ok(collector.command(Inject(rate_per_s=20.0, duration_s=60.0)))
    eventually(lambda: collector.picture.fleet and collector.picture.fleet.traffic.running)
    ok(collector.command(StopInjection()))
    eventually(lambda: collector.picture.fleet and not collector.picture.fleet.traffic.running)


def test_a_read_only_console_sends_no_command(engine: EngineServer) -> None:
    collector = Collector(parse_url(engine.control_url), read_only=True)
    collector.start()
    try:
        problem = collector.command(Drain(), "r0").result(ANSWER_S)
        assert isinstance(problem, Problem)
        assert problem.code == "read_only"
        assert ok(collector.command(Drain(dry_run=True), "r0")).operation is None
        assert collector.picture.read_only
    finally:
        assert collector.stop(60)
    assert engine.status().totals.ready == 2


def test_the_callback_wakes_also_when_nothing_happens_and_its_failure_stops_nothing(
    collector: Collector,
) -> None:
    wakes: list[float | None] = []

    def wake() -> None:
        wakes.append(collector.picture.link.age_s)
        raise RuntimeError("the screen has a bug")

    collector.on_picture(wake)
    eventually(lambda: len(wakes) >= 3)
    collector.on_picture(None)


def test_where_this_machines_clock_is_wrong_moments_are_the_servers(
    engine: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 600.0)
    collector = Collector(parse_url(engine.control_url))
    collector.start()
    try:
        eventually(lambda: collector.picture.link.state == "live")
        picture = collector.picture
        assert abs(picture.at - right()) < ANSWER_S  # a busy machine is late, not ten minutes ahead
        assert abs(picture.ahead_s + 600.0) < ANSWER_S
    finally:
        assert collector.stop(60)

    async def asked() -> float:
        async with EngineClient(collector.target) as client:
            return await client.now()

    assert abs(asyncio.run(asked()) - right()) < ANSWER_S


def test_a_server_that_goes_and_comes_back_is_found_again() -> None:
    with short_directory() as directory:
        model = write_tiny_gguf(directory / "tiny.gguf")
        settings = {"replicas": 1, "replica": {"model": str(model), "kv_blocks": 64, "threads": 1}}
        collector = Collector(parse_url(f"unix://{directory}/c.sock"))
        collector.start()
        try:
            assert collector.picture.link.state == "connecting"
            for reconnects in (0, 1):
                server = EngineServer(directory, settings)
                try:
                    eventually(lambda: collector.picture.link.state == "live")
                    assert collector.picture.link.reconnects == reconnects
                finally:
                    server.process.kill()
                    server.stop()
                eventually(lambda: collector.picture.link.state == "lost")
                assert list(collector.picture.replicas) == ["r0"]  # what was known stays
        finally:
            assert collector.stop(60)


def test_it_stops_while_the_server_is_silent_and_answers_what_was_asked() -> None:
    with short_directory() as directory, socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(directory / "c.sock"))
        mute.listen()
        collector = Collector(parse_url(f"unix://{directory}/c.sock"))
        collector.start()
        asked = [collector.command(Cancel(), f"q{number}") for number in range(MAX_COMMANDS + 1)]
        refused = asked[-1].result(ANSWER_S)
        assert isinstance(refused, Problem)
        assert refused.code == "too_many_commands"
        assert collector.stop(60)
        answers = [each.result(ANSWER_S) for each in asked[:-1]]
        assert {each.code for each in answers if isinstance(each, Problem)} == {"console_stopped"}
        late = collector.command(Cancel(), "q").result(ANSWER_S)
        assert isinstance(late, Problem)
        assert late.code == "console_stopped"


def test_an_unreachable_server_is_said_to_be_so() -> None:
    collector = Collector(parse_url("unix:///nonexistent/c.sock"))
    collector.start()
    try:
        problem = collector.command(Cancel(), "q").result(ANSWER_S)
        assert isinstance(problem, Problem)
        assert (problem.code, problem.title) == ("unreachable", "The server is unreachable.")
        eventually(lambda: "No such file" in collector.picture.link.message)
    finally:
        assert collector.stop(60)


def test_what_the_own_engine_is_doing_is_the_message_while_it_starts_and_after_it_died() -> None:
    status = EngineStatus("starting", "loading the weights")
    collector = Collector(parse_url("unix:///nonexistent/c.sock"), engine=lambda: status)
    assert (collector.picture.link.state, collector.picture.embedded) == ("starting", True)
    collector.start()
    try:
        eventually(lambda: collector.picture.link.message == "loading the weights")
        status = EngineStatus("ended", "the engine ended (exit 1)")
        eventually(lambda: collector.picture.link.state == "lost")
        assert collector.picture.link.message == "the engine ended (exit 1)"
    finally:
        assert collector.stop(60)


def test_the_diagnosis_is_given_what_was_recorded_before_it_came(
    engine: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Judge] = []
    monkeypatch.setattr(Judge, "take", lambda _self, other: given.append(other))
    made = Collector(parse_url(engine.control_url))
    made.start()
    try:
        eventually(lambda: given)
        assert made.picture.link.state == "live"
    finally:
        assert made.stop(60)
    assert len(given) == 1
