"""Real servers behind our gateway: streams, drain, cancel, headroom, and kill -9 under load."""

import asyncio
import math
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation
from infer_engine.fleet.upstream import upstream_fleet
from infer_engine.model.store import resolve
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import Drain, SetHeadroom
from infer_engine.settings import DEFAULT_MODEL, ServerSettings
from support.fleets import finished, spec, until

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
peer = pytest.importorskip("support.peer")

#: The servers share one slow machine with everything else.
WITHIN_S = 240.0
TOKENS = 120
#: Logarithms of the likelihoods of two tokens that rounding may exchange: it differs with who else is in the
#: batch, and with how many tokens are computed at once. Between decoding and asking anew the distance of the
#: two likeliest was seen to change by 0.11 (90th percentile of 84), and by 0.39 and 0.47 at most on two
#: machines. Where one token is lost in a move, what follows has tokens that are none of the forty likeliest.
TIE = 1.0
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(resolve(DEFAULT_MODEL))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple["peer.Peer", "peer.Peer"]]:
    with (
        peer.starting("llamacpp", tmp_path_factory.mktemp("first")) as first,
        peer.starting("llamacpp", tmp_path_factory.mktemp("second")) as second,
    ):
        yield first, second


@asynccontextmanager
async def fleet_of(tokenizer: Tokenizer, run_dir: Path, *urls: str) -> AsyncGenerator[Fleet]:
    fleet = upstream_fleet(
        ServerSettings(upstreams=urls, upstream_stall_s=120.0),
        tokenizer,
        8192,
        environment={},
        run_dir=run_dir,
    )
    await fleet.start()
    try:
        await ready(fleet, len(urls))
        yield fleet
    finally:
        await fleet.stop()


async def ready(fleet: Fleet, count: int) -> None:
    await until(lambda: len(fleet.capacity.ready_replicas()) == count, f"{count} ready", WITHIN_S)


def ask(fleet: Fleet, tokenizer: Tokenizer, about: str, tokens: int = TOKENS) -> Generation:
    """Greedy, to ``tokens`` tokens whatever they are."""
    prompt = tokenizer.chat_prompt([{"role": "user", "content": f"Tell a long story about {about}. 🦄"}])
    return fleet.submit(replace(spec(max_tokens=tokens), prompt=tuple(prompt)))


async def all_run(*generations: Generation) -> None:
    await until(lambda: all(len(each.emitted) > 3 for each in generations), "they run", WITHIN_S)


async def complete(*generations: Generation, tokens: int = TOKENS) -> None:
    await until(lambda: all(each.finished for each in generations), "they end", WITHIN_S)
    await finished(*generations)
    for each in generations:
        assert (each.finish_reason, each.error) == ("length", None)
        assert len(each.emitted) in (tokens, tokens - 1, tokens - 2)  # it may end within a character


async def test_a_drain_moves_running_streams(
    two: tuple["peer.Peer", "peer.Peer"], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    async with fleet_of(tokenizer, tmp_path, *(each.connect for each in two)) as fleet:
        generations = [ask(fleet, tokenizer, about) for about in ("the sea", "a mill", "two owls")]
        await all_run(*generations)
        moved = [each for each in generations if each.replica == "r0"]
        assert moved
        fleet.draining.drain("r0", Drain(mode="migrate"))
        await until(lambda: fleet.replica("r0").state == "drained", "it is empty", WITHIN_S)
        await complete(*generations)
        assert all(each.replica == "r1" and each.moves for each in moved)
        # Of one make, it goes on as it would have.
        for each in moved:
            off = await asyncio.to_thread(how_unlikely, two[1], each)
            assert max(off) < TIE, off


def how_unlikely(server: "peer.Peer", generation: Generation) -> list[float]:
    """For each token how much likelier the server finds another one after those before (natural logarithms;
    0 where none is)."""
    off: list[float] = []
    with httpx2.Client(timeout=WITHIN_S, trust_env=False) as client:
        for at, token in enumerate(generation.emitted):
            asked = {
                "prompt": [*generation.spec.prompt, *generation.emitted[:at]],
                "n_predict": 1,
                "n_probs": 40,
                "temperature": 0.0,
            }
            answer = client.post(f"{server.url}/completion", json=asked).json()
            likely = answer["completion_probabilities"][0]["top_logprobs"]
            told = {each["id"]: each["logprob"] for each in likely}
            off.append(max(told.values()) - told.get(token, -math.inf))
    return off


async def test_a_cancelled_request_leaves_its_slot(
    two: tuple["peer.Peer", "peer.Peer"], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    async with fleet_of(tokenizer, tmp_path, two[0].connect) as fleet:
        generation = ask(fleet, tokenizer, "rain", 400)
        await all_run(generation)
        fleet.cancel(generation.id)
        await until(lambda: generation.finished, "it ends", WITHIN_S)
        assert generation.error_code == "cancelled_by_operator"
        await until(lambda: fleet.replica("r0").kv.used == 0, "the server says that it is free", WITHIN_S)


async def test_headroom_holds_back_by_what_the_server_says(
    two: tuple["peer.Peer", "peer.Peer"], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    async with fleet_of(tokenizer, tmp_path, two[0].connect) as fleet:
        await fleet.limits.set_headroom(SetHeadroom(blocks=fleet.replica("r0").kv.total))
        # Long enough for a look at the server meanwhile: why a request waits is told with the next one.
        runs, waits = (ask(fleet, tokenizer, about, 450) for about in ("snow", "sand"))
        await all_run(runs)
        await until(lambda: any(row.waiting_reason == "headroom" for row in fleet.rows()), "one waits")
        assert waits.admitted_s is None
        await complete(runs, waits, tokens=450)


async def test_streams_of_a_killed_server_go_on_at_the_other(
    two: tuple["peer.Peer", "peer.Peer"], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    async with fleet_of(tokenizer, tmp_path, *(each.connect for each in two)) as fleet:
        generations = [ask(fleet, tokenizer, f"number {number}") for number in range(6)]
        await all_run(*generations)
        there = [each for each in generations if each.replica == "r0"]
        assert there
        two[0].kill()
        await complete(*generations)
        assert all(each.moves for each in there)
        assert fleet.replica("r0").state in ("starting", "failed")
        two[0].restart()
        await ready(fleet, 2)
        assert fleet.replica("r0").incarnation > 1


async def test_a_stream_goes_on_at_a_server_of_another_make(
    vllm: "peer.Peer", two: tuple["peer.Peer", "peer.Peer"], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    async with fleet_of(tokenizer, tmp_path, vllm.connect, two[1].connect) as fleet:
        assert [fleet.replica(each).upstream for each in ("r0", "r1")] == ["vLLM", "llama.cpp"]
        generations = [ask(fleet, tokenizer, about) for about in ("a lamp", "a bell")]
        await all_run(*generations)
        fleet.draining.drain("r0", Drain(mode="migrate"))
        await until(lambda: fleet.replica("r0").state == "drained", "it is empty", WITHIN_S)
        await complete(*generations)
        assert {each.replica for each in generations} == {"r1"}
