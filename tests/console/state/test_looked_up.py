"""What is asked for while somebody looks: bounded, and not taken for the present when nobody does."""

import msgspec
from infer_console.state.looked_up import MAX_ENDED, MAX_ROWS, LookedUp
from infer_engine.protocol import RequestRow, Requests, Timeline, TtftSplit


def row(number: int, state: str = "running") -> RequestRow:
    return RequestRow(
        id=f"q{number}",
        tenant="t",
        tier="interactive",
        replica="r0",
        state=state,  # pyright: ignore[reportArgumentType]
        prompt_tokens=1,
        age_s=1.0,
    )


def timeline(request: str) -> Timeline:
    return Timeline(request=request, began_at=0.0, entries=[], ttft_split_s=TtftSplit())


def test_a_server_that_knows_no_limit_is_cut_and_the_rest_counted() -> None:
    found = LookedUp()
    rows = [row(number, "waiting" if number % 2 else "running") for number in range(MAX_ROWS + 5)]
    found.listed(Requests(requests=rows, omitted={"waiting": 3}), 7.0)
    assert found.listing is not None
    assert len(found.listing.rows) == MAX_ROWS
    assert found.listing.omitted == {"waiting": 5, "running": 3}


def ended(number: int, at: float | None) -> RequestRow:
    return msgspec.structs.replace(row(number, "finished"), ended_at=at)


def test_what_ended_is_asked_for_once_and_stays() -> None:
    found = LookedUp()
    assert found.last_ended_at == 0.0
    found.listed(Requests(requests=[], ended=[ended(2, 20.0), ended(1, 10.0)]), 7.0)
    assert found.last_ended_at == 20.0
    found.listing_left()
    assert found.last_ended_at == 20.0
    found.listed(Requests(requests=[], ended=[ended(3, 30.0)]), 8.0)
    assert found.listing is not None
    assert [each.id for each in found.listing.ended] == ["q3", "q2", "q1"]
    found.listed(Requests(requests=[], ended=[ended(3, 30.0)]), 9.0)
    assert [each.id for each in found.listing.ended] == ["q3", "q2", "q1"]


def test_of_what_ended_so_much_is_kept_and_no_moment_is_believed_that_cannot_be() -> None:
    found = LookedUp()
    many = [ended(number, 5_000.0 - number) for number in range(MAX_ENDED + 5)]
    found.listed(Requests(requests=[], ended=[ended(9_998, 1e300), ended(9_999, None), *many]), 7.0)
    assert found.listing is not None
    assert len(found.listing.ended) == MAX_ENDED
    assert found.last_ended_at == 5_000.0


def test_a_failure_leaves_what_was_there_and_says_so() -> None:
    found = LookedUp()
    found.listed(Requests(requests=[row(1)]), 7.0)
    found.listing_failed("no answer")
    assert found.listing is not None
    assert found.listing_message == "no answer"
    found.listing_left()
    assert (found.listing, found.listing_message) == (None, "")


def test_a_timeline_belongs_to_the_request_that_is_looked_at() -> None:
    found = LookedUp()
    found.timeline_wanted("a")
    found.timeline_came("a", timeline("a"), 1.0)
    found.timeline_failed("a", "gone")
    assert found.timeline is not None
    assert found.timeline.timeline is not None
    assert found.timeline.message == "gone"
    found.timeline_wanted("b")
    found.timeline_failed("a", "late answer")
    assert found.timeline is not None
    assert (found.timeline.request, found.timeline.timeline, found.timeline.message) == ("b", None, "")
