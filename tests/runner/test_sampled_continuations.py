"""Whatever a request's parameters, what it generates follows from its tokens: preemption, a move, a fork and
other neighbours change nothing (fp32, a real model)."""

import json
import random
import re
from typing import Any

import pytest
from infer_engine.core.plan import Chunk, Plan
from infer_engine.core.request import Request
from infer_engine.core.swap import HostPool
from infer_engine.model.sampling import Constraint, Sampling
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.runner.runner import Runner
from support.running import make_request, run_all

PROMPT = [random.Random(5).randrange(3, 250) for _ in range(18)]
EOS = 2
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "sizes": {"type": "array", "maxItems": 3}},
    "required": ["name", "sizes"],
    "additionalProperties": False,
}
CONSTRAINT = Constraint(kind="json_schema", source=json.dumps(SCHEMA))
REGEX = Constraint(kind="regex", source=r"[a-f]{4}(-[0-9]{3}){3}")

PARAMETERS = {
    "plain": Sampling(temperature=0.9, seed=3),
    "penalties": Sampling(
        temperature=0.8, seed=4, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.7
    ),
    "greedy penalties": Sampling(temperature=0.0, repetition_penalty=1.5, frequency_penalty=0.3),
    "bias and minimum": Sampling(
        temperature=1.0, top_p=0.9, seed=5, logit_bias={EOS: 100.0, 40: 3.0}, min_tokens=11
    ),
    "min_p": Sampling(temperature=1.5, min_p=0.2, seed=6, top_k=40),
    "schema": Sampling(temperature=1.0, seed=7, constraint=CONSTRAINT, repetition_penalty=1.1),
    "regex": Sampling(temperature=0.7, seed=8, constraint=REGEX),
    "logprobs": Sampling(temperature=0.9, seed=9, logprobs=3),
}


def requests(prefix: str = "") -> list[Request]:
    batch = [
        make_request(prefix + name, [*PROMPT, 40 + at], max_tokens=48, sampling=sampling)
        for at, (name, sampling) in enumerate(PARAMETERS.items())
    ]
    for request in batch:
        request.stop_token_ids = frozenset({EOS})
    return batch


@pytest.fixture(scope="module")
def alone(runner: Runner) -> dict[str, list[int]]:
    """Each by itself."""
    outputs: dict[str, list[int]] = {}
    for request in requests():
        run_all(runner, [request])
        outputs[request.id] = request.output
    return outputs


@pytest.fixture(scope="module")
def tokenizer(tiny_path: Any) -> Tokenizer:
    return Tokenizer.from_file(tiny_path)


def outputs(batch: list[Request]) -> dict[str, list[int]]:
    return {request.id: request.output for request in batch}


def test_neighbours_change_nothing(runner: Runner, alone: dict[str, list[int]]) -> None:
    batch = requests()
    run_all(runner, batch, token_budget=32)
    assert outputs(batch) == alone


@pytest.mark.parametrize("host_blocks", [0, 40])
def test_preemption_changes_nothing(runner: Runner, alone: dict[str, list[int]], host_blocks: int) -> None:
    host = HostPool(host_blocks, "swap" if host_blocks else "recompute")
    batch = requests()
    scheduler = run_all(runner, batch, kv_blocks=40, host=host)
    assert scheduler.counters.preemptions > 3
    assert bool(scheduler.counters.swaps) == bool(host_blocks)
    assert outputs(batch) == alone


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_another_replica_goes_on_where_one_left_off(
    runner: Runner, alone: dict[str, list[int]], cut: int
) -> None:
    batch = requests()
    for request in batch:
        request.output = alone[request.id][:cut]
    going_on = [request for request in batch if request.output != alone[request.id]]
    assert len(going_on) > 4
    run_all(runner, going_on)
    assert all(request.output == alone[request.id] for request in going_on)


def test_what_they_asked_for_is_what_they_got(
    runner: Runner, alone: dict[str, list[int]], tokenizer: Tokenizer
) -> None:
    request = make_request("long", PROMPT, max_tokens=300, sampling=PARAMETERS["schema"])
    request.stop_token_ids = frozenset({EOS})
    run_all(runner, [request])
    assert request.finish_reason == "stop"
    assert json.loads(tokenizer.decode(request.output)).keys() == {"name", "sizes"}
    assert re.fullmatch(REGEX.source, tokenizer.decode(alone["regex"]))
    # Its bias would have ended it at once.
    assert len(alone["bias and minimum"]) == 12
    assert alone["bias and minimum"].index(EOS) == 11


def test_a_penalty_takes_effect(runner: Runner) -> None:
    batch = [
        make_request("free", PROMPT, max_tokens=60),
        make_request(
            "kept", PROMPT, 60, Sampling(temperature=0.0, frequency_penalty=2.0, presence_penalty=2.0)
        ),
    ]
    run_all(runner, batch)
    free, kept = (len(set(request.output)) for request in batch)
    assert kept > free


def test_the_end_comes_before_the_minimum_where_the_grammar_has_nothing_else(
    runner: Runner, tokenizer: Tokenizer
) -> None:
    one = Sampling(temperature=1.0, seed=1, constraint=REGEX, min_tokens=40)
    request = make_request("r", PROMPT, max_tokens=48, sampling=one)
    request.stop_token_ids = frozenset({EOS})
    run_all(runner, [request])
    assert re.fullmatch(REGEX.source, tokenizer.decode(request.output))
    assert request.finish_reason == "stop"


def step(runner: Runner, *requests: Request) -> Any:
    chunks = [Chunk(request, 0, request.total_tokens, samples=True) for request in requests]
    return runner.execute(Plan(step=1, chunks=chunks))


def test_who_cannot_go_on_harms_no_other(runner: Runner) -> None:
    good = make_request("good", PROMPT)
    good.block_table = list(range(8))
    expected = step(runner, good).tokens["good"]
    broken = make_request("broken", PROMPT, sampling=PARAMETERS["regex"])
    broken.output = [60, 60]  # nothing that the grammar allows
    broken.block_table = list(range(8, 16))
    unusable = make_request(
        "unusable", PROMPT, sampling=Sampling(constraint=Constraint(kind="regex", source="["))
    )
    unusable.block_table = list(range(16, 24))
    output = step(runner, broken, good, unusable)
    assert output.tokens.keys() == {"broken", "good", "unusable"}
    assert output.tokens["good"] == expected
    assert output.errors == {"broken": "constraint_failed", "unusable": "constraint_failed"}


def test_what_is_known_of_another_request_of_the_same_name_is_not_used(runner: Runner) -> None:
    first, second = requests()[6], requests()[6]
    first.output = [70, 71]
    for request in (first, second):
        request.block_table = list(range(8))
    step(runner, second)
    assert step(runner, first).errors == {}
    assert step(runner, second).errors == {}


def test_logprobs_are_of_the_raw_distribution(runner: Runner) -> None:
    """Whatever is done to the logits afterwards, and sums to one."""
    plain = make_request("plain", PROMPT, sampling=Sampling(temperature=0.0, logprobs=20))
    bent = make_request(
        "bent",
        PROMPT,
        sampling=Sampling(
            temperature=0.3, seed=1, logprobs=5, logit_bias={77: 100.0}, repetition_penalty=2.0
        ),
    )
    silent = make_request("silent", PROMPT)
    for at, request in enumerate((plain, bent, silent)):
        request.block_table = list(range(8 * at, 8 * at + 8))
    output = step(runner, plain, bent, silent)
    assert output.logprobs.keys() == {"plain", "bent"}
    own, top = output.logprobs["plain"], output.logprobs["bent"]
    assert len(own.top_ids) == 20
    assert own.top_ids[0] == output.tokens["plain"]
    assert own.logprob == own.top_logprobs[0] == max(own.top_logprobs)
    assert top.top_ids == own.top_ids[:5]
    assert top.top_logprobs == pytest.approx(own.top_logprobs[:5], abs=1e-5)
    assert output.tokens["bent"] == 77
    assert top.logprob < 0
