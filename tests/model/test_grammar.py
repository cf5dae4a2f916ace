"""Constrained output over the real byte-level vocabulary of a tiny model."""

import json
import random
import re

import numpy as np
import pytest
from infer_engine.model.constraint_limits import MOST_OPTIONAL, MOST_REPEATED, ConstraintError, check_regex
from infer_engine.model.grammar import Grammars, GrammarState, GrammarStateError, json_object
from infer_engine.model.sampling import Constraint
from infer_engine.model.tokenizer import Tokenizer

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def grammars(tiny_tokenizer: Tokenizer) -> Grammars:
    return Grammars(tiny_tokenizer)


def schema(value: object) -> Constraint:
    return Constraint(kind="json_schema", source=json.dumps(value))


def regex(pattern: str) -> Constraint:
    return Constraint(kind="regex", source=pattern)


def walk(state: GrammarState, tokenizer: Tokenizer, seed: int, most: int = 400) -> str:
    """Any tokens that are allowed, until only the end is."""
    rng = random.Random(seed)
    ids: list[int] = []
    for _ in range(most):
        allowed = np.flatnonzero(state.allowed()).tolist()
        if set(allowed) <= tokenizer.stop_ids:
            return tokenizer.decode(ids)
        token = rng.choice([each for each in allowed if each not in tokenizer.stop_ids])
        state.push(token)
        ids.append(token)
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_chosen_matches_the_schema(
    grammars: Grammars, tiny_tokenizer: Tokenizer, seed: int
) -> None:
    value = json.loads(walk(grammars.start(schema(SCHEMA)), tiny_tokenizer, seed))
    assert value.keys() == {"name", "age"}
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 8
    assert isinstance(value["age"], int)


def test_whatever_is_chosen_matches_the_expression(grammars: Grammars, tiny_tokenizer: Tokenizer) -> None:
    for seed in range(5):
        text = walk(grammars.start(regex(r"[0-9]{3}-(ab|cd){2}é")), tiny_tokenizer, seed)
        assert re.fullmatch(r"[0-9]{3}-(ab|cd){2}é", text)


def test_no_special_token_is_ever_text(grammars: Grammars, tiny_tokenizer: Tokenizer) -> None:
    allowed = set(np.flatnonzero(grammars.start(regex("[^x]*y")).allowed()).tolist())
    assert not allowed & set(tiny_tokenizer.special_ids.values())
    assert len(allowed) > 100


def test_a_grammar_that_ends_allows_only_the_end(grammars: Grammars, tiny_tokenizer: Tokenizer) -> None:
    state = grammars.start(regex("ab"))
    for token in tiny_tokenizer.encode("ab"):
        state.push(token)
    assert set(np.flatnonzero(state.allowed()).tolist()) == tiny_tokenizer.stop_ids


def test_states_of_one_grammar_do_not_share_their_place(
    grammars: Grammars, tiny_tokenizer: Tokenizer
) -> None:
    (a,), (b,) = tiny_tokenizer.encode("a"), tiny_tokenizer.encode("b")
    first, second = grammars.start(regex("ab")), grammars.start(regex("ab"))
    first.push(a)
    assert np.flatnonzero(first.allowed()).tolist() == [b]
    assert np.flatnonzero(second.allowed()).tolist() == [a]


def test_what_is_not_allowed_is_an_error_that_tells_no_text(
    grammars: Grammars, tiny_tokenizer: Tokenizer
) -> None:
    with pytest.raises(GrammarStateError, match=r"^token 1 of the answer is not allowed by it$"):
        grammars.start(regex("ab")).push(tiny_tokenizer.encode("x")[0])


def test_whitespace_comes_to_an_end(grammars: Grammars, tiny_tokenizer: Tokenizer) -> None:
    state = grammars.start(json_object())
    (brace,), (space,) = tiny_tokenizer.encode("{"), tiny_tokenizer.encode(" ")
    state.push(brace)
    for _ in range(20):
        state.push(space)
    assert not state.allowed()[space]


@pytest.mark.parametrize(
    ("constraint", "says"),
    [
        (regex("[0-9{3"), "unclosed"),
        (regex("(?=a)b"), "look-around"),
        (regex(r"[^\s\S]"), "no text matches"),
        (regex("(a{1000}){1000}"), "10,000"),
        (regex("a{999999999999999999999}"), "10,000"),
        (regex("((((((a{9}){9}){9}){9}){9}){9})"), "10,000"),
        (regex("(" * 100 + "a" + ")" * 100), "10,000"),
        (regex("a" * 70_000), "65,536"),
        (schema({"type": "objekt"}), "objekt"),
        (schema({"$ref": "http://example.com/schema"}), "example.com"),
        (schema({"$ref": "#"}), "no text matches"),
        (schema({"type": "integer", "minimum": 3, "maximum": 2}), "minimum"),
        (schema({"type": "string", "pattern": "(a{1000}){1000}"}), "10,000"),
        (schema({"type": "integer", "multipleOf": 1_000_003}), "10,000"),
        (schema({"allOf": [{"multipleOf": 997}, {"multipleOf": 991}]}), "10,000"),
        (schema({"type": "object", "x-guidance": {"lenient": True}}), "x-guidance"),
        (schema([1]), "object"),
        (Constraint(kind="json_schema", source="{"), "not JSON"),
        (Constraint(kind="json_schema", source="[" * 60_000), "not JSON"),
        (Constraint(kind="json_schema", source='{"a":' * 500 + "1" + "}" * 500), "deep"),
    ],
)
def test_what_cannot_be_used_is_said(grammars: Grammars, constraint: Constraint, says: str) -> None:
    with pytest.raises(ConstraintError, match=re.escape(says)) as raised:
        grammars.start(constraint)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    ("pattern", "fine"),
    [
        (r"[a-z{9999}]{3}\{9999\}x{2}", True),
        (f"a{{{MOST_REPEATED}}}", True),
        (f"a{{{MOST_REPEATED + 1}}}", False),
        (r"(ab{1,50}c){1,100}", True),
        (r"(ab{1,50}c){1,300}", False),
        (r"a{5000}b{5001}", False),
        (r"(a{100})+", True),
        (r"\p{Lu}{3}", True),
    ],
)
def test_repetitions_are_counted_where_they_are_some(pattern: str, fine: bool) -> None:
    if fine:
        check_regex(pattern)
    else:
        with pytest.raises(ConstraintError):
            check_regex(pattern)


@pytest.mark.parametrize("more", [True, False])
def test_an_object_of_too_many_optional_properties_is_refused_and_of_the_most_it_works(
    more: bool, grammars: Grammars, tiny_tokenizer: Tokenizer
) -> None:
    names = [f"property_{number}" for number in range(1200)]
    properties = {name: {"type": "integer"} for name in names}
    with pytest.raises(ConstraintError, match="1,200 properties that are not required; at most 400"):
        grammars.start(schema({"type": "object", "properties": properties, "additionalProperties": more}))
    required = names[: 1200 - MOST_OPTIONAL]
    answer = json.dumps(dict.fromkeys([*required, names[-1]], 1))
    state = grammars.start(
        schema(
            {"type": "object", "properties": properties, "required": required, "additionalProperties": more}
        )
    )
    for token in tiny_tokenizer.encode(answer[:40]):
        assert state.allowed()[token]
        state.push(token)
    fewer = {name: properties[name] for name in names[:MOST_OPTIONAL]}
    state = grammars.start(schema({"type": "object", "properties": fewer, "additionalProperties": more}))
    for token in tiny_tokenizer.encode(f'{{"{names[3]}": 1, "{names[MOST_OPTIONAL - 1]}": 2}}'):
        assert state.allowed()[token]
        state.push(token)
