"""Where a request goes, as a function of loads alone."""

from collections import Counter

from infer_engine.fleet.router import Load, choose, cost


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
        kv_taken_blocks=taken,
        kv_total_blocks=100,
        most_waiting=most_waiting,
    )


def test_fewer_sequences_win() -> None:
    assert choose([load("a", running=3), load("b", running=2), load("c", running=4)], 0) == "b"
    assert choose([load("a", running=3, waiting=1), load("b", running=4, waiting=0, slots=16)], 0) == "b"


def test_a_long_queued_prefill_counts_like_sequences() -> None:
    assert choose([load("a", running=1, prefill=640), load("b", running=4)], 0) == "b"


def test_free_memory_decides_between_equals() -> None:
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
    base = cost(load("a", running=2, taken=60))
    assert cost(load("a", running=3, taken=60)) > base
    assert cost(load("a", running=2, taken=60, prefill=64)) > base
    assert cost(load("a", running=2, taken=70)) > base
    assert cost(load("a", running=2, waiting=1, taken=60)) > cost(load("a", running=3, taken=60))


def test_an_unknown_pool_counts_as_taken() -> None:
    unknown = Load("a", 0, 0, 8, 0, 64, 0, 0, 4)
    assert choose([unknown, load("b", running=1)], 0) == "b"
