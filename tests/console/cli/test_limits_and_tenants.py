"""The verbs limits and tenant against a real engine server."""

import pytest
from infer_console.cli import codes
from infer_console.cli.assignments import AssignmentError, parse_assignments
from infer_console.cli.limits import NAMES
from infer_engine.core.limits import LIMIT_NAMES
from infer_engine.protocol import LiveLimits, Tenants
from msgspec import convert
from support.cli import Run


def test_the_help_lists_the_limits_that_there_are() -> None:
    assert set(NAMES) == set(LIMIT_NAMES)


def test_limits_are_shown_changed_and_refused(run: Run) -> None:
    before = convert(run("limits", "--json").document, LiveLimits).replicas
    assert set(before) == {"r0", "r1"}
    lines = run("limits").out.splitlines()
    assert lines[0].split() == ["LIMIT", "r0", "r1", "WHAT"]
    assert [line.split()[0] for line in lines[1:]] == list(NAMES)

    dry = run("limits", "token_budget=64", "--dry-run")
    assert f"r0: token_budget {before['r0']['token_budget']} → 64" in dry.out
    assert convert(run("limits", "--json").document, LiveLimits).replicas == before

    done = run("limits", "token-budget=64", "max_passes=2", "--replica", "r1", "--reason", "try")
    assert (done.code, done.err) == (codes.OK, "")
    assert f"r1 token_budget {before['r1']['token_budget']} → 64" in done.out
    after = convert(run("limits", "--json", "--replica", "r1").document, LiveLimits).replicas
    assert after == {"r1": {**before["r1"], "token_budget": 64, "max_passes": 2}}

    bad = run("limits", "max_waiting=7", "max_running=0")
    assert bad.code == codes.USAGE
    assert "max_running" in bad.err
    assert convert(run("limits", "--json").document, LiveLimits).replicas["r0"] == before["r0"]
    back = [f"{name}={before['r1'][name]}" for name in ("token_budget", "max_passes")]
    assert run("limits", *back, "--replica", "r1").code == codes.OK


@pytest.mark.parametrize(
    "words",
    [
        ("limits", "speed=3"),
        ("limits", "token_budget"),
        ("limits", "token_budget=many"),
        ("limits", "token_budget=1.5"),
        ("limits", "token_budget=64", "token_budget=65"),
        ("limits", "token_budget=64", "--revert-after", "soon"),
        ("limits", "--revert-after", "5s"),
        ("tenant", "a", "--revert-after", "5s"),
        ("tenant", "", "--limit", "kv_share=0.5"),
        ("tenant", "--limit", "kv_share=0.5"),
        ("tenant", "a", "--limit", "speed=1"),
        ("tenant", "a", "--limit", "kv_share=0.5", "--forget"),
    ],
)
def test_words_that_make_no_sense_are_a_usage_error_that_names_them(run: Run, words: tuple[str, ...]) -> None:
    result = run(*words)
    assert (result.code, result.out) == (codes.USAGE, "")
    assert result.err.startswith(f"infer-console: {words[0]}: ")


def test_a_tenant_is_limited_shown_and_forgotten(run: Run) -> None:
    done = run("tenant", "acme", "--limit", "kv_share=25%", "--limit", "requests_per_minute=90")
    assert (done.code, done.err) == (codes.OK, "warning: acme has no requests now\n")
    assert "the default → requests_per_minute=90 kv_share=25%" in done.out
    shown = convert(run("tenant", "acme", "--json").document, Tenants).tenants
    assert [(each.name, each.own, each.limits.kv_share) for each in shown] == [("acme", True, 0.25)]
    table = run("tenant").out.splitlines()
    assert table[0].split()[0] == "TENANT"
    assert [line.split()[6:9] for line in table if line.startswith("acme")] == [["90", "–", "25"]]
    assert run("tenant", "acme", "--limit", "kv_share=none").code == codes.OK
    assert convert(run("tenant", "acme", "--json").document, Tenants).tenants[0].limits.kv_share is None
    assert run("tenant", "acme", "--forget").code == codes.OK
    gone = run("tenant", "acme")
    assert gone.code == codes.ERROR
    refused = run("tenant", "acme", "--limit", "kv_share=3")
    assert refused.code == codes.USAGE
    assert "kv_share" in refused.err


@pytest.mark.parametrize(
    ("word", "value"),
    [("a=1", 1), ("a=0.5", 0.5), ("a=50%", 0.5), ("a=none", None), ("a=batch", "batch"), (" a = 2 ", 2)],
)
def test_values(word: str, value: object) -> None:
    assert parse_assignments([word], ["a"]) == {"a": value}


@pytest.mark.parametrize("digits", [400, 5000])
def test_numbers_beyond_all_measure_are_left_to_who_refuses_them(digits: int) -> None:
    for word in ("9" * digits, "9" * digits + "%"):
        assert str(parse_assignments([f"a={word}"], ["a"])["a"]) == word


@pytest.mark.parametrize("word", ["a", "a=", "=1", "b=1"])
def test_no_assignment(word: str) -> None:
    with pytest.raises(AssignmentError):
        parse_assignments([word], ["a"])
