"""What a broker is told, against a real mosquitto; and that the fleet does not care whether one is there."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from infer_engine.telemetry import mqtt
from infer_engine.telemetry.mqtt import Publisher
from infer_engine.telemetry.mqtt_address import parse_broker
from infer_engine.telemetry.mqtt_mailbox import Letter, Mailbox
from support.broker import Broker, broker, listening
from support.fleets import Bench, finished, running_fleet, until

pytestmark = pytest.mark.broker

STATUS = "infer/v1/local/status"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits longer than it must; the will comes at once."""
    monkeypatch.setattr(mqtt, "TELEMETRY_S", 0.05)
    monkeypatch.setattr(mqtt, "FIRST_BACKOFF_S", 0.02)
    monkeypatch.setattr(mqtt, "LONGEST_BACKOFF_S", 0.2)
    monkeypatch.setattr(mqtt, "WILL_DELAY_S", 0)


@asynccontextmanager
async def publishing(bench: Bench, running: Broker) -> AsyncGenerator[Publisher]:
    address = parse_broker(f"mqtt://127.0.0.1:{running.port}")
    publisher = Publisher(bench.fleet, mqtt.Broker(address=address), status=bench.fleet.status)
    publisher.start()
    try:
        yield publisher
    finally:
        await publisher.close()


def test_what_it_says_from_birth_to_farewell(tmp_path: Path) -> None:
    async def scenario() -> None:
        with broker(tmp_path) as running, listening(running.port) as ear:
            async with running_fleet(replicas=2) as bench:
                async with publishing(bench, running):
                    await until(lambda: ear.on("infer/v1/local/telemetry"))
                    await finished(bench.submit(5, 6))
                    await until(
                        lambda: (
                            ear.on("infer/v1/local/r0/event/finish")
                            + ear.on("infer/v1/local/r1/event/finish")
                        )
                    )
                    await until(lambda: ear.last("infer/v1/local/r1/status"))
                await until(lambda: (ear.last(STATUS) or {}).get("state") == "offline")
        birth, farewell = (each.payload for each in ear.on(STATUS))
        assert birth["state"] == "online"
        assert birth["incarnation"] == farewell["incarnation"]
        assert birth["seq"] < farewell["seq"]
        info = ear.last("infer/v1/local/info")
        assert info is not None
        assert (info["replicas"], info["kv_blocks"]) == (2, 32)
        replica = ear.last("infer/v1/local/r0/status")
        assert replica is not None
        assert replica["state"] == "ready"
        telemetry = ear.last("infer/v1/local/r0/telemetry")
        assert telemetry is not None
        assert telemetry["kv_total"] == 16
        assert telemetry["prefix_hit_ratio"] is None  # unknown, not 0
        # Birth comes before everything else.
        assert [each.topic for each in ear.heard[:2]] == [STATUS, "infer/v1/local/info"]

    asyncio.run(scenario())


def test_states_are_retained_and_told_again_after_the_broker_was_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        with broker(tmp_path) as running:
            async with running_fleet() as bench, publishing(bench, running) as publisher:
                await until(_sent(publisher))
                with listening(running.port, "infer/v1/+/status") as late:
                    await until(lambda: late.last(STATUS))
                    assert late.heard[0].retain
                running.kill()
                await until(lambda: not publisher.connected)
                await finished(bench.submit(5, 6))
                running.start()  # it remembers nothing
                await until(lambda: publisher.connections == 2)
                await until(_sent(publisher))
                with listening(running.port) as ear:
                    await until(lambda: ear.last(STATUS) and ear.last("infer/v1/local/r0/status"))
                    assert (ear.last(STATUS) or {})["state"] == "online"
        # The end of the request, which happened while no broker was there, was not lost.
        assert publisher.mailbox.dropped == 0

    asyncio.run(scenario())


def test_nobody_waits_for_a_broker_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "SEND_TIMEOUT_S", 0.3)

    async def scenario() -> None:
        with broker(tmp_path) as running:
            async with running_fleet(max_waiting=2000) as bench, publishing(bench, running) as publisher:
                publisher.mailbox.most_events = 50
                with listening(running.port, "infer/v1/local/#") as ear:
                    await until(_sent(publisher))
                    running.hang()
                    await finished(*[bench.submit(4, 4) for _ in range(60)])
                    assert len(publisher.mailbox) <= 50 + 2 + 2 * len(bench.fleet.replica_ids()) + 1
                    assert publisher.mailbox.dropped > 0
                    running.go_on()
                    await until(lambda: [each for each in ear.heard if each.payload.get("dropped")])

    asyncio.run(scenario())


def test_it_closes_though_the_broker_hangs_and_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a socket holds is on its way, so that neither a farewell nor a disconnect gets through."""
    monkeypatch.setattr(mqtt, "GOODBYE_S", 0.1)
    monkeypatch.setattr(mqtt, "HANG_UP_S", 0.1)
    big = Letter("infer/v1/local/big", {"text": "x" * 16_000_000})
    taken = asyncio.Event()
    take = Mailbox.take

    async def scenario() -> None:
        with broker(tmp_path) as running:
            async with running_fleet() as bench, publishing(bench, running) as publisher:

                def hanging_at_big(mailbox: Mailbox) -> Letter | None:
                    """What came before it has been sent, or the publisher would not take it."""
                    letter = take(mailbox)
                    if letter == big:
                        running.hang()
                        taken.set()
                    return letter

                await until(_sent(publisher))
                monkeypatch.setattr(Mailbox, "take", hanging_at_big)
                publisher.mailbox.latest(big)
                await asyncio.wait_for(taken.wait(), 60)
                async with asyncio.timeout(mqtt.SEND_TIMEOUT_S / 2):
                    await publisher.close()
                assert "mqtt" not in {task.get_name() for task in asyncio.all_tasks()}

    asyncio.run(scenario())


def _sent(publisher: Publisher) -> Callable[[], bool]:
    return lambda: publisher.connected and not len(publisher.mailbox)
