from hypothesis import given
from hypothesis import strategies as st
from infer_engine.core.reported_pool import LAG_S, ReportedPool


def test_without_a_word_from_the_server_our_own_books_count() -> None:
    pool = ReportedPool(100, 16)
    held = pool.take(30)
    assert (pool.used, pool.free, pool.available) == (30, 70, 70)
    pool.release(held[:10])
    assert pool.used == 20


def test_what_we_held_when_the_server_told_is_in_its_figure_and_counts_once() -> None:
    pool = ReportedPool(100, 16)
    held = pool.take(30)
    pool.report(45, None, 0.0)
    assert pool.used == 45
    pool.take(5)
    assert pool.used == 50
    pool.report(50, None, 10.0)
    assert pool.used == 50
    pool.release(held)
    assert pool.used == 20


def test_a_server_that_counts_late_does_not_make_us_forget_what_was_just_sent() -> None:
    pool = ReportedPool(100, 16)
    pool.report(0, None, 0.0)
    pool.take(40)
    pool.report(0, None, 1.0)
    assert pool.used == 40
    pool.report(0, None, 1.0 + LAG_S)
    pool.report(0, None, 1.1 + LAG_S)
    assert pool.used == 0  # by now it would have been counted: it shares, or it is wrong, but it is its word


def test_what_is_kept_for_others_is_free_for_who_needs_it() -> None:
    pool = ReportedPool(100, 16)
    pool.report(60, 70, 0.0)
    assert (pool.used, pool.cached, pool.free, pool.available) == (60, 40, 0, 40)


def test_nothing_is_available_while_its_word_is_old() -> None:
    pool = ReportedPool(100, 16)
    pool.report(10, None, 0.0)
    pool.grow_stale()
    assert (pool.used, pool.available, pool.allocate(1)) == (10, 0, None)
    pool.report(10, None, 9.0)
    assert pool.available == 90


def test_lies_are_kept_within_what_can_be() -> None:
    pool = ReportedPool(100, 16)
    pool.report(-5, -5, 0.0)
    assert (pool.used, pool.cached) == (0, 0)
    pool.report(10**12, 10**12, 1.0)
    assert (pool.used, pool.cached, pool.available) == (100, 0, 0)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(0, 40)),
            st.tuples(st.just("release"), st.integers(0, 40)),
            st.tuples(st.just("report"), st.integers(-3, 200)),
            st.tuples(st.just("silent"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_its_books_balance_whatever_happens(what: list[tuple[str, int]]) -> None:
    pool = ReportedPool(100, 16)
    held: list[int] = []
    now_s = 0.0
    for verb, count in what:
        now_s += 0.7
        if verb == "take":
            new = pool.take(count)
            assert not set(new) & set(held)
            assert len(set(new)) == count
            held += new
        elif verb == "release":
            gone, held = held[:count], held[count:]
            assert pool.release(gone) == len(gone)
        elif verb == "report":
            pool.report(count, count // 2, now_s)
            assert not pool.stale
        else:
            pool.grow_stale()
        assert pool.ours == len(held)
        assert pool.used + pool.cached + pool.free == pool.total
        assert 0 <= pool.available <= pool.total
        assert pool.free >= 0
        assert pool.available in (0, pool.total - pool.used)
        assert len(pool.ref_counts) <= sum(count for verb, count in what if verb == "take")
