from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from infer_engine.core.dispatcher import Dispatcher
from infer_engine.core.limits import Limits
from infer_engine.core.reported_pool import ReportedPool
from infer_engine.core.request import Request
from infer_engine.core.shown_slots import LONGEST_PAUSE_S, LOOKS, ShownSlots


@dataclass
class Server:
    """Runs ``batch`` at once, which it does not tell, and is looked at once a second. Everybody of ours who
    may be there is."""

    batch: int
    others: int = 0
    shown: ShownSlots = field(default_factory=ShownSlots)
    now_s: float = 0.0

    def looks(self, count: int, wanted: int = 100, limit: int = 256) -> list[int]:
        """How many of ours were there at each."""
        seen: list[int] = []
        for _ in range(count):
            ours = min(wanted, limit if self.shown.most is None else self.shown.most)
            there = ours + self.others
            running = min(self.batch, there)
            self.shown.look(
                running=running,
                waiting=there - running,
                in_flight=ours,
                decoding=running * ours // max(1, there),
                now_s=self.now_s,
            )
            self.now_s += 1.0
            seen.append(ours)
        return seen


def test_a_queue_inside_the_server_shows_how_many_it_runs() -> None:
    server = Server(batch=4)
    assert server.looks(LOOKS) == [100] * LOOKS
    assert server.shown.most == 4


def test_a_batch_that_still_fills_shows_nothing() -> None:
    shown = ShownSlots()
    for running in (1, 9, 30, 60, 90):
        assert shown.look(running=running, waiting=5, in_flight=95, decoding=0, now_s=running) is None


def test_without_a_queue_nothing_is_held_back() -> None:
    server = Server(batch=500)
    server.looks(50)
    assert server.shown.most is None


def test_it_is_tried_now_and_then_whether_more_fit_and_ever_less_often() -> None:
    server = Server(batch=4)
    server.looks(LOOKS)
    seen = server.looks(600)
    assert set(seen) == {4, 5}
    tries = [at for at, (before, now) in enumerate(pairwise(seen)) if now > before]
    pauses = [later - at for at, later in pairwise(tries)]
    assert pauses[0] < 20
    assert all(pause <= LONGEST_PAUSE_S + LOOKS + 1 for pause in pauses)
    assert pauses[-1] > LONGEST_PAUSE_S / 2
    assert seen.count(5) <= LOOKS * (len(tries) + 1)


def test_a_server_that_came_to_have_more_room_gets_more() -> None:
    server = Server(batch=4)
    server.looks(LOOKS)
    server.batch = 64
    assert max(server.looks(120)) >= 64


def test_others_at_the_server_leave_us_our_share() -> None:
    server = Server(batch=10, others=50)
    server.looks(LOOKS, wanted=50)
    assert server.shown.most == 5


def test_what_we_see_running_counts_more_than_what_is_said() -> None:
    shown = ShownSlots()
    for at in range(LOOKS):
        shown.look(running=1, waiting=1_000_000, in_flight=20, decoding=12, now_s=at)
    assert shown.most == 12


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-5, 10**12),
            st.none() | st.integers(-5, 10**12),
            st.integers(0, 256),
            st.integers(0, 256),
        )
    )
)
def test_whatever_is_said_somebody_may_go_there(
    looks: list[tuple[int | None, int | None, int, int]],
) -> None:
    shown = ShownSlots()
    for at, (running, waiting, in_flight, decoding) in enumerate(looks):
        most = shown.look(
            running=running,
            waiting=waiting,
            in_flight=in_flight,
            decoding=min(decoding, in_flight),
            now_s=float(at),
        )
        assert most is None or most >= 1


def test_who_waits_for_them_says_so_and_the_operators_limit_stays() -> None:
    limits = Limits(admit_limit=90, batch_limit=90, max_running=8, token_budget=2048)
    of = Dispatcher(ReportedPool(100, 16), limits, 4096)
    for number in range(6):
        of.add(
            Request(id=f"a{number}", prompt=[1] * 16, max_tokens=9, arrival_s=0.0, tier="interactive"), 0.0
        )
    of.slots = 4
    assert len(of.step(0.0).admitted) == 4
    assert of.admission.reason_counts() == {"slots": 2}
    assert (of.limits.max_running, of.in_force.max_running) == (8, 4)
    of.slots = 100
    assert len(of.step(0.0).admitted) == 2
    assert of.in_force.max_running == 8
