"""Replicas of ours and servers of others in one fleet: requests go on from either at the other."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import GenerationSpec, Refusal
from infer_engine.fleet.upstream import upstream_fleet
from infer_engine.model.sampling import Constraint, Sampling
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import Drain, Fence, Scale
from infer_engine.settings import ServerSettings
from support import replicas
from support.fake_upstream import FakeUpstream, answer_to, fake_upstreams
from support.fleets import ThreadLauncher, finished, spec, until
from support.upstream_fleet import CONTEXT, fake, ready
from support.upstream_fleet import tokenizer as tokenizer


@pytest.fixture(autouse=True)
def ordinary_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ours says is in the vocabulary that all have."""
    monkeypatch.setattr(replicas, "FIRST_TOKEN", 40)


@asynccontextmanager
async def mixed(
    tokenizer: Tokenizer, server: FakeUpstream, run_dir: Path
) -> AsyncGenerator[tuple[Fleet, ThreadLauncher]]:
    """r0 is ``server``, r1 is ours, and both are ready."""
    launcher = ThreadLauncher(context_length=CONTEXT)
    launcher.load_gate.set()
    async with fake_upstreams(server):
        fleet = upstream_fleet(
            ServerSettings(upstreams=(server.url,), own_replicas=1),
            tokenizer,
            CONTEXT,
            environment={},
            run_dir=run_dir,
            look_s=0.05,
            launch_own=launcher,
        )
        await fleet.start()
        try:
            await ready(fleet, 2)
            yield fleet, launcher
        finally:
            await fleet.stop()


def kept_to(source: str) -> GenerationSpec:
    sampling = Sampling(temperature=0.0, constraint=Constraint(kind="json_schema", source=source))
    return replace(spec(max_tokens=12), sampling=sampling, streams=True)


async def test_each_is_what_it_is(tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = fake(tokenizer)
    async with mixed(tokenizer, server, tmp_path) as (fleet, launcher):
        theirs, ours = fleet.replica("r0"), fleet.replica("r1")
        assert (theirs.launcher, theirs.upstream, theirs.pid, theirs.threads) == (
            "upstream",
            "vLLM",
            None,
            None,
        )
        assert (ours.launcher, ours.upstream, ours.pid) == ("local", None, launcher.now("r1").pid)
        assert ours.threads
        both = [fleet.submit(replace(spec(max_tokens=3), prompt=(number,) * 9)) for number in range(6)]
        await finished(*both)
        assert {each.replica for each in both} == {"r0", "r1"}
        with pytest.raises(Refusal) as refused:
            fleet.resizing.predict(Scale(replicas=3))
        assert refused.value.problem.code == "not_ours"
        fenced = fleet.fencing.predict("r1", Fence())
        assert "its process is killed" in fenced.summary[0]
        assert "its streams are closed" in fleet.fencing.predict("r0", Fence()).summary[0]


async def test_a_stream_goes_on_from_theirs_at_ours(tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = fake(tokenizer, free_tokens=4)
    server.gate.clear()
    async with mixed(tokenizer, server, tmp_path) as (fleet, _):
        fleet.draining.drain("r1", Drain())
        asked = replace(spec(prompt_tokens=9, max_tokens=12), streams=True)
        generation = fleet.submit(asked)
        await until(lambda: len(generation.emitted) == 4, "4 tokens from theirs")
        fleet.draining.undrain("r1")
        server.kill()
        await finished(generation)
        assert (generation.replica, generation.finish_reason) == ("r1", "length")
        assert generation.moves >= 1  # it may be asked again before it is known to be gone
        assert generation.emitted[:4] == answer_to(list(asked.prompt), 4)
        assert len(generation.emitted) == 12
        await until(lambda: fleet.replica("r0").state == "starting", "it is looked for")


async def test_a_stream_goes_on_from_ours_at_theirs(tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = fake(tokenizer)
    async with mixed(tokenizer, server, tmp_path) as (fleet, launcher):
        fleet.draining.drain("r0", Drain())
        launcher.now("r1").runner.hold()
        generation = fleet.submit(replace(spec(prompt_tokens=9, max_tokens=12), streams=True))
        launcher.now("r1").runner.allow(3)
        await until(lambda: len(generation.emitted) >= 2, "some tokens of ours")
        fleet.draining.undrain("r0")
        launcher.now("r1").kill()
        await finished(generation)
        assert (generation.replica, generation.finish_reason) == ("r0", "length")
        (body,) = server.generated()
        assert len(body["prompt"]) > 9
        assert generation.emitted[len(body["prompt"]) - 9 :] == answer_to(
            body["prompt"], 12 + 9 - len(body["prompt"])
        )


async def test_what_is_bound_to_theirs_goes_on_at_ours(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Which follows a constraint from wherever an answer is."""
    server = fake(tokenizer, free_tokens=4)
    server.gate.clear()
    async with mixed(tokenizer, server, tmp_path) as (fleet, _):
        fleet.draining.drain("r1", Drain())
        generation = fleet.submit(kept_to('{"enum": ["abcdefghijkl"]}'))
        await until(lambda: len(generation.emitted) == 4, "4 tokens from theirs")
        fleet.draining.undrain("r1")
        effect = fleet.draining.predict("r0", Drain())
        assert not any("until it ends" in line for line in effect.summary)
        fleet.draining.drain("r0", Drain())
        await finished(generation)
        assert (generation.replica, generation.error) == ("r1", None)


@pytest.mark.parametrize("streams", [True, False])
async def test_what_must_match_leaves_ours_only_to_be_had_anew(
    streams: bool, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    server = fake(tokenizer)
    async with mixed(tokenizer, server, tmp_path) as (fleet, launcher):
        fleet.draining.drain("r0", Drain())
        launcher.now("r1").runner.hold()
        generation = fleet.submit(replace(kept_to('{"enum": ["abcdef"]}'), streams=streams))
        launcher.now("r1").runner.allow(3)
        await until(lambda: len(generation.emitted) >= 2, "some tokens of ours")
        fleet.draining.undrain("r0")
        effect = fleet.draining.predict("r1", Drain())
        assert any("1 of them until it ends" in line for line in effect.summary) == streams
        fleet.draining.drain("r1", Drain())
        launcher.now("r1").runner.release()
        await finished(generation)
        assert (generation.replica, generation.error) == (("r1", None) if streams else ("r0", None))
        assert generation.restarts == (0 if streams else 1)
        if not streams:
            assert tokenizer.decode(generation.emitted) == '"abcdef"'
