"""May a replica be drained, and what will it do: as a function of facts alone."""

from typing import Any

import pytest
from infer_engine.fleet.drain import DrainFacts, RunningFact, judge, mode_of
from infer_engine.fleet.drain_effect import predict
from infer_engine.fleet.pacing import Leaver, Room
from infer_engine.protocol import Drain


def facts(**changes: Any) -> DrainFacts:
    given: dict[str, Any] = {
        "replica": "r0",
        "state": "ready",
        "running": [RunningFact("a", 100), RunningFact("b", 30)],
        "waiting": 3,
        "waiting_blocks": 10,
        "tokens_per_s": 20.0,
        "other_ready": ["r1", "r2"],
        "others_kv_used": 50,
        "others_kv_total": 200,
        "fleet_kv_used": 110,
        "fleet_kv_total": 300,
    }
    return DrainFacts(**(given | changes))


def test_a_ready_replica_with_others_may_be_drained() -> None:
    assert judge(facts(), Drain()) is None
    assert judge(facts(state="draining", other_ready=[]), Drain()) is None, "asking twice is fine"


def test_the_last_ready_one_needs_force() -> None:
    denied = judge(facts(other_ready=[]), Drain())
    assert denied is not None
    assert (denied.status, denied.code) == (409, "would_break_min_ready")
    assert denied.numbers == {"ready": 1, "ready_after": 0, "min_ready": 1}
    assert judge(facts(other_ready=[]), Drain(force=True)) is None


@pytest.mark.parametrize("state", ["starting", "restarting", "failed", "stopping", "fenced"])
def test_what_is_not_ready_cannot_be_drained_even_by_force(state: str) -> None:
    denied = judge(facts(state=state), Drain(force=True))
    assert denied is not None
    assert (denied.status, denied.code) == (409, "not_ready")


def test_nothing_that_runs_is_not_said_to_finish_and_auto_says_what_it_chose() -> None:
    summary = predict(facts(running=[]), Drain()).summary
    assert "nothing runs here" in summary
    assert not any("0 requests" in line for line in summary)
    assert summary[0] == "no new requests reach r0 (mode wait, which auto chose)"
    assert predict(facts(), Drain(mode="wait")).summary[0] == "no new requests reach r0 (mode wait)"


def room(replica: str = "r1", **changes: Any) -> Room:
    given: dict[str, Any] = {
        "prefill_tokens": 0,
        "token_budget": 64,
        "free_slots": 8,
        "taken_blocks": 0,
        "admit_limit": 90,
        "batch_limit": 65,
        "total_blocks": 100,
    }
    return Room(replica=replica, **(given | changes))


def leaver(name: str, tokens: int = 32, blocks: int = 2) -> Leaver:
    return Leaver(id=name, tier="interactive", arrived_s=0.0, tokens=tokens, blocks=blocks)


def test_migrate_needs_another_replica_and_is_the_default_where_there_is_one() -> None:
    denied = judge(facts(), Drain(mode="migrate", force=True))
    assert denied is not None
    assert (denied.status, denied.code, denied.field) == (409, "no_other_replica", "mode")
    assert judge(facts(rooms=[room()]), Drain(mode="migrate")) is None
    assert mode_of(facts(), Drain()) == "wait"
    assert mode_of(facts(rooms=[room()]), Drain()) == "migrate"
    assert mode_of(facts(rooms=[room()]), Drain(mode="cancel")) == "cancel"


def test_a_migration_says_who_moves_what_is_computed_again_and_who_stays() -> None:
    running = [RunningFact("a", 100, leaver("a", 320)), RunningFact("b", 30, leaver("b", 80, blocks=99))]
    effect = predict(
        facts(running=running, rooms=[room(taken_blocks=1)], prefill_tokens_per_s=160.0), Drain()
    )
    numbers = effect.numbers
    assert (numbers["migrated"], numbers["recompute_tokens"], numbers["staying"]) == (1, 320, 1)
    assert numbers["seconds_to_drained"] == pytest.approx(max(320 / 160, 30 / (20 / 2)))
    assert any("1 request running here will go on at r1" in line for line in effect.summary)
    assert any("wait here for room elsewhere" in line for line in effect.summary)
    gone = predict(facts(running=running[:1], rooms=[room()], prefill_tokens_per_s=160.0), Drain())
    assert gone.numbers["seconds_to_drained"] == pytest.approx(2)


def test_waiting_for_the_running_takes_at_most_the_longest_at_the_present_rate() -> None:
    numbers = predict(facts(), Drain()).numbers
    assert numbers["seconds_to_drained"] == pytest.approx(100 / (20 / 2))
    assert (numbers["running"], numbers["moved"], numbers["held"], numbers["cancelled"]) == (2, 3, 0, 0)
    assert numbers["fleet_kv_ratio"] == pytest.approx(110 / 300)
    assert numbers["fleet_kv_ratio_after"] == pytest.approx(60 / 200)
    assert numbers["ready_after"] == 2


def test_an_unknown_rate_is_no_estimate() -> None:
    assert predict(facts(tokens_per_s=None), Drain()).numbers["seconds_to_drained"] is None
    assert predict(facts(tokens_per_s=0.0), Drain()).numbers["seconds_to_drained"] is None
    assert predict(facts(running=[]), Drain()).numbers["seconds_to_drained"] == 0


def test_cancel_is_said_and_takes_no_time() -> None:
    effect = predict(facts(), Drain(mode="cancel"))
    assert effect.numbers["cancelled"] == 2
    assert effect.numbers["seconds_to_drained"] == 0
    assert any("2 requests" in line and "cancelled" in line for line in effect.summary)


def test_without_others_the_queue_is_held_and_that_is_a_warning() -> None:
    effect = predict(facts(other_ready=[], others_kv_total=0, others_kv_used=0), Drain(force=True))
    assert (effect.numbers["moved"], effect.numbers["held"]) == (0, 3)
    assert effect.numbers["fleet_kv_ratio_after"] is None
    assert any("held" in line for line in effect.warnings)


def test_a_nearly_full_rest_is_a_warning() -> None:
    assert not predict(facts(), Drain()).warnings
    assert any("nearly full" in line for line in predict(facts(others_kv_used=185), Drain()).warnings)


def test_what_does_not_fit_elsewhere_is_said_to_wait() -> None:
    """15 blocks are free there, the 10 requests that move need 40."""
    effect = predict(facts(others_kv_used=185, waiting=10, waiting_blocks=40), Drain())
    assert "the remaining replicas have no room for all: about 7 requests will wait there" in effect.summary
    assert not any("KV use" in line for line in effect.summary)
    assert effect.numbers["fleet_kv_ratio_after"] == pytest.approx(225 / 200)


def test_a_stalled_replica_is_said_not_to_obey_yet() -> None:
    assert predict(facts(stalled=True), Drain(mode="cancel")).warnings == [
        "r0 is stalled: nothing is cancelled and nothing moves before it answers or its process ends"
    ]
    assert "nothing finishes" in predict(facts(stalled=True), Drain()).warnings[0]


def test_the_refusal_names_the_option_that_overrides_it() -> None:
    denied = judge(facts(other_ready=[]), Drain())
    assert denied is not None
    assert denied.detail.endswith("--force overrides this")
