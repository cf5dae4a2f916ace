"""Who may join a fleet by itself, over real sockets: which place it gets, why it is turned away, and what
becomes of its place when it is gone. No worker runs here."""

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Refusal
from infer_engine.fleet.joining import KEPT_S, MOST_TOLD, RETURN_S, Door
from infer_engine.fleet.spec_file import SpecDir
from infer_engine.model.fingerprint import difference
from infer_engine.protocol import Event, Scale
from infer_engine.replica.curve import KeyPair, new_pair
from infer_engine.replica.dealer import Dealer
from infer_engine.replica.join_messages import (
    JOIN_VERSION,
    EndLife,
    Join,
    Knock,
    Leave,
    LifeEnded,
    Terms,
    ToJoiner,
    TurnedAway,
    Welcome,
)
from infer_engine.replica.join_socket import JoinSocket
from infer_engine.replica.key_list import KeyList
from infer_engine.replica.link_watch import LinkLostError
from infer_engine.replica.messages import Failed, LinkKeys, Ready, Started, StepReport, TokenOut
from infer_engine.runner.runner import RunnerInfo
from infer_engine.settings import ReplicaSettings, ServerSettings
from msgspec.structs import replace
from support.fleets import spec, until
from support.replicas import runner_info

MODEL = {"layers": "2", "tokenizer": "t", "weights": "w"}


class Yard:
    """A fleet with a door, and those who stand before it."""

    def __init__(self, directory: Path, server: KeyPair, *pairs: KeyPair) -> None:
        self.server = server
        self.list_path = directory / "keys"
        self.list(*pairs)
        self.ahead_s = 0.0
        self.links: list[JoinSocket] = []
        self.specs = SpecDir(directory / "state")
        self.specs.open()
        self.fleet = Fleet(
            ServerSettings(replicas=0, join_listen="127.0.0.1:0", join_keys="-", replica=ReplicaSettings()),
            spec_dir=self.specs,
            real_clock=lambda: time.monotonic() + self.ahead_s,
            door=Door(
                host="127.0.0.1",
                port=0,
                keys=server,
                listed=KeyList(self.list_path),
                difference=lambda theirs: difference(MODEL, theirs),
            ),
        )
        self.events: list[Event] = []
        self.fleet.feed.subscribe(lambda item: self.events.append(item) if isinstance(item, Event) else None)

    def empty(self) -> bool:
        joining = self.fleet.joining
        assert joining is not None
        joining.tick()
        return not any(seat.taken for seat in joining.seats.values())

    def list(self, *pairs: KeyPair) -> None:
        self.list_path.write_text("".join(f"{pair.public.hex()}\n" for pair in pairs))
        self.list_path.chmod(0o600)

    def peer(self, pair: KeyPair) -> JoinSocket:
        assert self.fleet.joining is not None
        keys = LinkKeys(
            server=self.server.public.hex(), public=pair.public.hex(), secret=pair.secret.hex(), ticket=""
        )
        self.links.append(JoinSocket(self.fleet.joining.link.endpoint, keys))
        return self.links[-1]

    async def knock(
        self,
        pair: KeyPair,
        replica: str | None = None,
        *,
        host: str = "a",
        version: int = JOIN_VERSION,
        model: dict[str, str] = MODEL,
    ) -> tuple[JoinSocket, ToJoiner]:
        """The connection, and the server's last word before there would be a worker."""
        link = self.peer(pair)
        link.send(Knock(version=version, host=host, pid=7, replica=replica))
        answer = await heard(link)
        if isinstance(answer, Terms):
            link.send(Join(model=model))
            answer = await heard(link)
        return link, answer

    async def welcomed(self, pair: KeyPair, replica: str | None = None, *, host: str = "a") -> JoinSocket:
        link, answer = await self.knock(pair, replica, host=host)
        assert isinstance(answer, Welcome), answer
        return link

    async def refused(self, pair: KeyPair, replica: str | None = None, *, host: str = "a") -> str:
        _, answer = await self.knock(pair, replica, host=host)
        assert isinstance(answer, TurnedAway)
        return answer.why

    async def state(self, replica: str, wanted: str) -> None:
        await until(lambda: self.fleet.replica(replica).state == wanted, f"{replica} {wanted}")

    async def ended(self, replica: str, link: JoinSocket, incarnation: int, code: int) -> None:
        link.send(LifeEnded(incarnation=incarnation, code=code))
        await self.state(replica, "failed")


async def heard(link: JoinSocket) -> ToJoiner:
    found: list[ToJoiner] = []

    def looks() -> bool:
        message = link.receive(0.0)
        if message is not None:
            found.append(message)
        return bool(found)

    await until(looks, "a word of the server")
    return found[0]


@asynccontextmanager
async def yard(directory: Path, server: KeyPair, *pairs: KeyPair) -> AsyncGenerator[Yard]:
    made = Yard(directory, server, *pairs)
    try:
        await made.fleet.start()
        yield made
    finally:
        for link in made.links:
            link.close()
        await until(made.empty, "the server sees that all are gone")
        await made.fleet.stop()
        made.specs.close()


ONE, OTHER, SERVER = new_pair(), new_pair(), new_pair()


async def test_each_gets_a_place_and_its_own_again(tmp_path: Path) -> None:
    async with yard(tmp_path, SERVER, ONE, OTHER) as there:
        fleet = there.fleet
        first = await there.welcomed(ONE)
        await there.welcomed(ONE)
        await there.welcomed(OTHER, "gpu-7", host="b")
        assert fleet.replica_ids() == ["r0", "r1", "gpu-7"]
        shown = fleet.replica("gpu-7")
        assert (shown.state, shown.launcher, shown.host, shown.incarnation) == ("starting", "joined", "b", 1)
        assert "here already" in await there.refused(OTHER, "gpu-7")
        assert "of another key" in await there.refused(ONE, "gpu-7")
        await there.ended("r0", first, 1, -9)
        assert fleet.replica("r0").error == (
            "lost: its process was killed by SIGKILL, by whom is not known; it joins again by itself"
        )
        first = await there.welcomed(ONE)
        await there.state("r0", "starting")
        assert (fleet.replica("r0").incarnation, len(fleet.replica_ids())) == (2, 3)
        first.close()
        there.links.remove(first)
        await there.state("r0", "failed")
        assert "connection to it is gone" in str(fleet.replica("r0").error)


async def test_what_keeps_one_out_is_said_on_both_sides(tmp_path: Path) -> None:
    async with yard(tmp_path, SERVER, ONE) as there:
        _, answer = await there.knock(ONE, model={**MODEL, "layers": "3"})
        assert isinstance(answer, TurnedAway)
        assert answer.final
        assert "its layers is '3' instead of '2'" in answer.why
        _, answer = await there.knock(ONE, model={"layers": "2"})
        assert isinstance(answer, TurnedAway)
        assert "its tokenizer differs" in answer.why
        _, answer = await there.knock(ONE, version=JOIN_VERSION + 1)
        assert isinstance(answer, TurnedAway)
        assert f"version {JOIN_VERSION + 1}" in answer.why
        assert "does not match" in await there.refused(ONE, "r1.2")
        stranger = there.peer(OTHER)

        def refused() -> bool:
            try:
                stranger.receive(0.0)
            except LinkLostError as error:
                return OTHER.public.hex() in str(error)
            return False

        await until(refused, "the stranger is told")
        assert there.fleet.replica_ids() == []
        reasons = [event.message or "" for event in there.events if event.reason == "refused"]
        assert len(reasons) == 4
        assert "from a: its model is not the one that this fleet serves: its layers" in reasons[0]


async def test_the_fence_stands_until_release_and_is_not_walked_around(tmp_path: Path) -> None:
    async with yard(tmp_path, SERVER, ONE) as there:
        fleet = there.fleet
        link = await there.welcomed(ONE)
        assert fleet.fencing.fence("r0", "fan") is None
        told = await heard(link)
        assert isinstance(told, EndLife)
        link.send(LifeEnded(incarnation=1, code=-9))
        await until(lambda: fleet.members.lifecycles["r0"].ended)
        assert "r0 is fenced (fan)" in await there.refused(ONE, "r0")
        assert "r0 of this machine is fenced" in await there.refused(ONE)
        await there.welcomed(ONE, host="b")
        assert fleet.replica("r0").state == "fenced"
        fleet.fencing.release("r0")
        await there.state("r0", "failed")
        await there.welcomed(ONE)
        await there.state("r0", "starting")


async def test_one_that_stalled_is_ended_where_it_runs_and_joins_again(tmp_path: Path) -> None:
    async with yard(tmp_path, SERVER, ONE) as there:
        link = await there.welcomed(ONE)
        there.fleet.members.lifecycles["r0"].declare_dead("it stalled")
        assert there.fleet.replica("r0").state == "failed"
        assert isinstance(await heard(link), EndLife)
        link.send(LifeEnded(incarnation=1, code=-9))
        await until(lambda: there.fleet.members.lifecycles["r0"].ended)
        await there.welcomed(ONE, "r0")
        await there.state("r0", "starting")
        assert there.fleet.replica("r0").incarnation == 2


async def test_one_who_leaves_or_stays_away_is_removed_and_nobody_is_started_instead(tmp_path: Path) -> None:
    async with yard(tmp_path, SERVER, ONE) as there:
        fleet = there.fleet
        leaver, lost = await there.welcomed(ONE), await there.welcomed(ONE)
        leaver.send(Leave(within_s=0.0))
        assert isinstance(await heard(leaver), EndLife)
        leaver.send(LifeEnded(incarnation=1, code=0))
        await until(lambda: fleet.replica_ids() == ["r1"])
        await there.ended("r1", lost, 1, 1)
        waiting = fleet.submit(spec(4, 4))
        assert not waiting.finished, "it waits: the replica may be here again in a moment"
        there.ahead_s = RETURN_S + 1
        await until(lambda: waiting.finished)
        assert waiting.error_code == "no_ready_replica"
        there.ahead_s = KEPT_S + 1
        await until(lambda: fleet.replica_ids() == [])
        with pytest.raises(Refusal) as refused:
            fleet.resizing.predict(Scale(replicas=0, victims=["r1"]))
        assert refused.value.problem.status == 422
        removed = [event.actor for event in there.events if event.reason == "removed"]
        assert removed == ["the replica itself (left)", "the replica itself (lost)"]


async def test_scale_neither_counts_nor_takes_them(tmp_path: Path) -> None:
    async with yard(tmp_path, SERVER, ONE) as there:
        await there.welcomed(ONE)
        effect = there.fleet.resizing.predict(Scale(replicas=2))
        assert effect.numbers["before"] == 0.0
        assert "1 that joined by themselves are not counted, and stay" in effect.summary
        with pytest.raises(Refusal) as refused:
            there.fleet.resizing.predict(Scale(replicas=0, victims=["r0"], force=True))
        assert "r0 joined by itself from a" in refused.value.problem.detail


async def test_a_key_that_is_taken_off_the_list_ends_its_replica(tmp_path: Path) -> None:
    async with yard(tmp_path, SERVER, ONE, OTHER) as there:
        link = await there.welcomed(ONE)
        there.list(OTHER)
        assert isinstance(await heard(link), EndLife)
        await there.state("r0", "failed")
        assert "not among those who may join" in str(there.fleet.replica("r0").error)


async def test_specs_of_the_joined_outlive_the_server_and_it_starts_none_of_them(tmp_path: Path) -> None:
    async with yard(tmp_path, SERVER, ONE) as there:
        await there.welcomed(ONE, "gpu-1")
        await there.welcomed(ONE, "r4")
        there.fleet.fencing.fence("gpu-1", "fan")
        await there.fleet.specs.save()
    async with yard(tmp_path, SERVER, ONE) as there:
        assert sorted(there.fleet.replica_ids()) == ["gpu-1", "r4"]
        await there.state("gpu-1", "fenced")
        assert there.fleet.replica("r4").error == "it is not here yet: it joins by itself"
        assert "gpu-1 is fenced (fan)" in await there.refused(ONE, "gpu-1")
        await there.welcomed(ONE, "r4")
        await there.welcomed(ONE, host="b")
        assert sorted(there.fleet.replica_ids()) == ["gpu-1", "r4", "r5"]


@pytest.mark.parametrize(
    "word",
    [Knock(version=JOIN_VERSION, host="a", pid=7), LifeEnded(incarnation=9, code=0)],
    ids=["knock", "end"],
)
async def test_no_word_of_the_joined_lets_it_outlast_its_key(word: Knock | LifeEnded, tmp_path: Path) -> None:
    async with yard(tmp_path, SERVER, ONE, OTHER) as there:
        joining = there.fleet.joining
        assert joining is not None
        link = await there.welcomed(ONE)
        link.send(word)
        ended = isinstance(word, LifeEnded)
        # The word has been heard once it is refused, or its seat is empty.
        await until(lambda: joining.link.malformed == 1 or there.empty())
        assert there.empty() is ended
        there.list(OTHER)
        await until(there.empty)
        await there.state("r0", "failed")


async def test_who_is_turned_away_again_and_again_is_not_told_of_each_time(tmp_path: Path) -> None:
    async with yard(tmp_path, SERVER, ONE) as there:
        link = there.peer(ONE)
        for _ in range(MOST_TOLD + 5):
            link.send(Knock(version=0, host="a", pid=7))
            assert isinstance(await heard(link), TurnedAway)
        assert len([event for event in there.events if event.reason == "refused"]) == MOST_TOLD


async def test_what_a_joined_replica_says_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its tokens are in nobody's vocabulary, its numbers are none, and what it says moves a cursor."""
    async with yard(tmp_path, SERVER, ONE) as there:
        fleet = there.fleet
        assert fleet.joining is not None
        door = fleet.joining.link
        knocking, answer = await there.knock(ONE)
        assert isinstance(answer, Welcome)
        keys = LinkKeys(
            server=SERVER.public.hex(), public=ONE.public.hex(), secret=ONE.secret.hex(), ticket=answer.ticket
        )
        worker = Dealer(door.endpoint, b"r0.1", keys)
        try:
            worker.send(Started(replica="r0", incarnation=1, pid=7))
            worker.send(ready_of(replace(runner_info(), kv_blocks=0)))
            worker.send(ready_of(runner_info()))
            await there.state("r0", "ready")
            generation = fleet.submit(spec(4, 4))
            worker.send(report(kv_used=-1))
            worker.send(report(duration_s=float("nan")))
            worker.send(report(tokens=[TokenOut(generation.id, 1, -1)]))
            worker.send(Failed(incarnation=1, error="\x1b]0;mine\x07" * 1000))
            worker.send(report(tokens=[TokenOut(generation.id, 2**31, 0)]))
            await until(lambda: generation.finished)
            assert (generation.error_code, generation.emitted) == ("unknown_token", [])
            assert door.malformed == 4
            shown = str(fleet.replica("r0").error)
            assert len(shown) <= 2000
            assert "\x1b" not in shown
            assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
        finally:
            worker.close()
        knocking.send(LifeEnded(incarnation=1, code=-9))
        await until(there.empty)


def ready_of(info: RunnerInfo) -> Ready:
    return Ready(incarnation=1, info=info, admit_limit=16, batch_limit=16, max_running=4, token_budget=64)


def report(*, kv_used: int = 0, duration_s: float = 0.0, tokens: list[TokenOut] | None = None) -> StepReport:
    return StepReport(
        incarnation=1,
        step=1,
        duration_s=duration_s,
        running=1,
        waiting=0,
        decode_tokens=0,
        prefill_tokens=0,
        kv_used=kv_used,
        kv_free=0,
        kv_cached=0,
        tokens=tokens or [],
    )
