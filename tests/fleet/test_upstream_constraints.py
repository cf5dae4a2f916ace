"""Answers that must match something, from servers of others: asked for, gone on with, or said to be bound."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, GenerationSpec, Refusal
from infer_engine.model.sampling import Constraint, Sampling
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import Drain, Fence, Preempt, Shed, Tier
from support.fake_upstream import Kind, fake_upstreams
from support.fleets import finished, spec, until
from support.upstream_fleet import events, fake, fleet_of, ready
from support.upstream_fleet import tokenizer as tokenizer

VALUE = "abcdefghijklmnop"
WHOLE = json.dumps(VALUE)


def constrained(
    schema: dict[str, Any] | None = None, *, streams: bool = True, tier: Tier = "interactive"
) -> GenerationSpec:
    source = json.dumps({"enum": [VALUE]} if schema is None else schema)
    sampling = Sampling(temperature=0.0, constraint=Constraint(kind="json_schema", source=source))
    return replace(spec(max_tokens=60), sampling=sampling, streams=streams, tier=tier)


def said(tokenizer: Tokenizer, generation: Generation) -> str:
    return tokenizer.decode(generation.emitted)


async def begun(fleet: Fleet, asked: GenerationSpec) -> Generation:
    """Four of its tokens are there, and the others are held."""
    generation = fleet.submit(asked)
    await until(lambda: len(generation.emitted) == 4, "4 tokens")
    return generation


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
async def test_every_kind_is_asked_for_it(kind: Kind, tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = fake(tokenizer, kind)
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)
        generation = fleet.submit(constrained())
        await finished(generation)
        assert said(tokenizer, generation) == WHOLE
        assert (generation.finish_reason, generation.error) == ("stop", None)


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
async def test_a_server_that_leaves_it_out_is_not_asked_for_it(
    kind: Kind, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    server = fake(tokenizer, kind, follows=False)
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)
        with pytest.raises(Refusal) as refused:
            fleet.submit(constrained())
        problem = refused.value.problem
        assert (problem.status, problem.code, problem.field) == (
            400,
            "unsupported_parameter",
            "response_format",
        )
        await finished(fleet.submit(spec(max_tokens=3)))


async def test_a_schema_goes_to_who_follows_all_of_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    leaves_out, follows = fake(tokenizer, "llamacpp"), fake(tokenizer, "vllm")
    async with (
        fake_upstreams(leaves_out, follows),
        fleet_of(tokenizer, leaves_out, follows, run_dir=tmp_path) as (fleet, _),
    ):
        await ready(fleet, 2)
        asked = [
            fleet.submit(constrained({"enum": [VALUE], "type": "string", "format": "email"}))
            for _ in range(3)
        ]
        await finished(*asked)
        assert {each.replica for each in asked} == {"r1"}


async def test_a_stream_that_nobody_can_go_on_with_stays_and_says_so(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    servers = [fake(tokenizer, "vllm", free_tokens=4) for _ in range(2)]
    for each in servers:
        each.gate.clear()
    async with fake_upstreams(*servers), fleet_of(tokenizer, *servers, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 2)
        generation = await begun(fleet, constrained(tier="batch"))
        there = str(generation.replica)
        other = next(each for each in ("r0", "r1") if each != there)
        row = fleet.row(generation.id)
        assert row is not None
        assert row.bound
        for to in (other, None):
            with pytest.raises(Refusal) as refused:
                fleet.preempting.preempt(generation.id, Preempt(to=to, actor="op"))
            assert refused.value.problem.code == "bound"
        # What takes batch requests from where they run leaves it alone.
        fleet.shedding.apply(Shed(on=True, actor="op"))
        effect = fleet.draining.predict(there, Drain(actor="op"))
        assert any("1 of them until it ends: no other replica can go on" in line for line in effect.summary)
        fenced = fleet.fencing.predict(there, Fence(actor="op"))
        assert any("1 of them end with an error (constraint_cut)" in line for line in fenced.warnings)
        fleet.draining.drain(there, Drain(actor="op"))
        free = fleet.submit(spec(max_tokens=3))
        await finished(free)
        assert (generation.replica, generation.moves, generation.finished) == (there, 0, False)
        for each in servers:
            each.gate.set()
        await finished(generation)
        assert (said(tokenizer, generation), generation.preemptions) == (WHOLE, 0)
        await until(lambda: fleet.replica(there).state == "drained", "it is drained")


async def test_it_ends_with_a_reason_when_its_server_dies(tokenizer: Tokenizer, tmp_path: Path) -> None:
    servers = [fake(tokenizer, "vllm", free_tokens=4) for _ in range(2)]
    for each in servers:
        each.gate.clear()
    async with (
        fake_upstreams(*servers),
        fleet_of(tokenizer, *servers, run_dir=tmp_path) as (fleet, happened),
    ):
        await ready(fleet, 2)
        generation = await begun(fleet, constrained())
        there = str(generation.replica)
        servers[int(there[1])].kill()
        await finished(generation)
        assert (generation.finish_reason, generation.error_code) == ("error", "constraint_cut")
        (end,) = events(happened, "finish")
        assert "no server that is left can go on within what it must match" in (end.message or "")
        await until(lambda: fleet.replica(there).state == "starting", "it is looked for")


async def test_an_answer_of_which_nothing_was_sent_is_had_anew(tokenizer: Tokenizer, tmp_path: Path) -> None:
    servers = [fake(tokenizer, "vllm", free_tokens=4) for _ in range(2)]
    for each in servers:
        each.gate.clear()
    async with fake_upstreams(*servers), fleet_of(tokenizer, *servers, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 2)
        generation = await begun(fleet, constrained(streams=False))
        there = int(str(generation.replica)[1])
        servers[1 - there].gate.set()
        servers[there].kill()
        await finished(generation)
        assert (said(tokenizer, generation), generation.finish_reason) == (WHOLE, "stop")
        assert (generation.restarts, generation.replica) == (1, f"r{1 - there}")
        (body,) = servers[1 - there].generated()
        assert len(body["prompt"]) == len(generation.spec.prompt)
        await until(lambda: fleet.replica(f"r{there}").state == "starting", "it is looked for")


async def test_who_waits_for_the_one_server_that_can_keeps_nobody_waiting(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    able, other = fake(tokenizer, "vllm"), fake(tokenizer, "llamacpp")
    async with fake_upstreams(able, other), fleet_of(tokenizer, able, other, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 2)
        able.kill()
        await until(lambda: fleet.replica("r0").state == "starting", "it is gone")
        asked = replace(spec(max_tokens=3), sampling=Sampling(temperature=0.0, logprobs=1))
        waits = fleet.submit(asked)
        others = [fleet.submit(spec(max_tokens=3)) for _ in range(3)]
        await finished(*others)
        assert {each.replica for each in others} == {"r1"}
        row = fleet.row(waits.id)
        assert row is not None
        assert (row.state, row.waiting_reason, row.replica) == ("waiting", "loading", None)
        await able.start()
        await finished(waits)
        assert (waits.replica, waits.finish_reason) == ("r0", "length")
