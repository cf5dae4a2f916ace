"""What is asked for while somebody looks: bounded, and not taken for the present when nobody does."""

from infer_console.state.looked_up import MAX_ROWS, LookedUp
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
