"""Where a request goes, as a function of loads alone."""

from collections import Counter

from infer_engine.fleet.router import AFFINITY_ABS, Ask, Choice, Load, cost
from infer_engine.fleet.router import choose as choose_of


def choose(loads: list[Load], turn: int) -> str | None:
    choice = choose_of(loads, Ask(tokens=64, turn=turn))
    return None if choice is None else choice.replica


def load(
    replica: str,
    *,
    running: int = 0,
    waiting: int = 0,
    slots: int = 8,
    prefill: int = 0,
    taken: int = 0,
    most_waiting: int = 4,
) -> Load:
    return Load(
        replica=replica,
        running=running,
        waiting=waiting,
        slots=slots,
        queued_prefill_tokens=prefill,
        token_budget=64,
        kv_used_blocks=taken,
        kv_promised_blocks=0,
        kv_total_blocks=100,
        most_waiting=most_waiting,
    )


def test_fewer_sequences_win() -> None:
    assert choose([load("a", running=3), load("b", running=2), load("c", running=4)], 0) == "b"
    assert choose([load("a", running=3, waiting=1), load("b", running=4, waiting=0, slots=16)], 0) == "b"


def test_a_long_queued_prefill_counts_like_sequences() -> None:
    assert choose([load("a", running=1, prefill=640), load("b", running=4)], 0) == "b"


def test_short_memory_decides_between_equals() -> None:
    assert choose([load("a", running=2, taken=90), load("b", running=2, taken=20)], 1) == "b"


def test_waiting_on_a_full_pool_weighs_more_than_running() -> None:
    """Four wait for memory here, six run there: the new one would wait longer here."""
    assert (
        choose([load("a", running=1, waiting=4, taken=100, most_waiting=9), load("b", running=6)], 0) == "b"
    )


def test_ties_go_round() -> None:
    loads = [load("a"), load("b"), load("c")]
    assert Counter(choose(loads, turn) for turn in range(9)) == {"a": 3, "b": 3, "c": 3}


def test_a_full_queue_is_passed_over_and_all_full_is_nobody() -> None:
    assert choose([load("a", waiting=4), load("b", running=8, waiting=3)], 0) == "b"
    assert choose([load("a", waiting=4), load("b", waiting=9)], 0) is None
    assert choose([], 0) is None


def test_cost_grows_with_each_part() -> None:
    base = cost(load("a", running=2, taken=85), 64)
    assert cost(load("a", running=2, taken=85), 128) == base + 1.0
    assert cost(load("a", running=3, taken=85), 64) > base
    assert cost(load("a", running=2, taken=85, prefill=64), 64) == base + 1.0
    assert cost(load("a", running=2, taken=95), 64) > base
    assert cost(load("a", running=1, waiting=1, taken=85), 64) > base
    assert cost(load("a", running=8), 64) > cost(load("a", running=7), 64) + 4


def test_an_unknown_pool_counts_as_taken() -> None:
    unknown = Load("a", 0, 0, 8, 0, 64, 0, 0, 0, 4)
    assert choose([unknown, load("b", running=1)], 0) == "b"


def test_a_held_beginning_is_worth_what_it_saves_and_no_more() -> None:
    ask = Ask(tokens=640, held_tokens={"a": 320})
    assert choose_of([load("a", prefill=256), load("b")], ask) == Choice("a", "prefix 320 tokens", 2)
    assert choose_of([load("a", prefill=384), load("b")], ask) == Choice("b", "least loaded", 2)


def test_what_is_held_counts_only_while_the_fleet_is_in_balance() -> None:
    ask = Ask(tokens=6_400, held_tokens={"a": 6_400})
    ahead = load("a", running=AFFINITY_ABS, slots=999)
    assert choose_of([ahead, load("b", slots=999)], ask) == Choice("a", "prefix 6400 tokens", 2)
    too_far = load("a", running=AFFINITY_ABS + 1, slots=999)
    assert choose_of([too_far, load("b", slots=999)], ask) == Choice("b", "least loaded", 2)


def test_an_old_word_counts_as_loaded_and_never_as_nobody() -> None:
    old, busy = load("old"), load("busy", running=7)
    old.stale = True
    assert choose([old, busy], 0) == "busy"
    assert choose([old, load("full", waiting=4)], 0) == "old"
    busy.stale = True
    assert choose([old, busy], 0) == "old"


def test_the_reason_names_what_decided() -> None:
    one = choose_of([load("a")], Ask(tokens=1))
    tied = choose_of([load("a"), load("b")], Ask(tokens=1))
    assert (str(one), str(tied)) == ("only one", "rotation, of 2")
