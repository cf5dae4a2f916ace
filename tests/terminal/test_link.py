"""The link budget on links of every kind, with a clock of its own."""

from infer_console.terminal.link import DEEP, LEAST_BUDGET_BYTES, SLOW_BYTES, LinkBudget


class Wire:
    """A link of so many bytes a second and such a round trip; frames are answered in order."""

    def __init__(self, budget: LinkBudget, bytes_per_s: float, round_trip_s: float) -> None:
        self.budget, self.bytes_per_s, self.round_trip_s = budget, bytes_per_s, round_trip_s
        self.now_s = 0.0
        self.frames = 0

    def run(self, seconds: float, frame_bytes: int) -> float:
        """Draws whenever it may for so long; returns frames a second."""
        until_s, first = self.now_s + seconds, self.frames
        while self.now_s < until_s:
            assert self.budget.ready(0)
            allowed = self.budget.budget_bytes
            size = frame_bytes if allowed is None else min(frame_bytes, allowed)
            self.budget.written(self.now_s, size)
            self.frames += 1
            answered_s = self.now_s + self.round_trip_s + size / self.bytes_per_s
            assert self.budget.measured is False or not self.budget.ready(0)
            self.budget.answered(answered_s)
            self.now_s = max(answered_s, self.now_s + self.budget.period_s)
        return (self.frames - first) / seconds


def test_a_quick_link_is_drawn_on_as_often_as_wanted() -> None:
    assert 9.5 < Wire(LinkBudget(), 10e6, 0.002).run(10, 4_000) <= 10.1
    assert 3.9 < Wire(LinkBudget(most_hz=4), 10e6, 0.002).run(10, 4_000) <= 4.2


def test_a_far_link_with_room_is_drawn_on_once_a_round_trip() -> None:
    assert 2.5 < Wire(LinkBudget(), 10e6, 0.3).run(20, 4_000) <= 3.4


def test_a_narrow_link_is_half_idle_and_frames_get_smaller() -> None:
    budget = LinkBudget()
    wire = Wire(budget, 4_000, 0.1)
    wire.run(10, 200)
    rate = wire.run(60, 12_000)
    assert 0.4 <= rate < 10
    assert budget.budget_bytes is not None
    assert LEAST_BUDGET_BYTES <= budget.budget_bytes < 12_000


def test_a_link_that_got_better_is_used_again() -> None:
    budget = LinkBudget()
    wire = Wire(budget, 1_000, 0.2)
    wire.run(30, 3_000)
    assert budget.period_s > 0.3
    wire.bytes_per_s, wire.round_trip_s = 1e6, 0.01
    wire.run(30, 3_000)
    assert wire.run(5, 3_000) > 9
    assert budget.budget_bytes is None


def test_the_rate_stays_within_its_bounds() -> None:
    budget = LinkBudget()
    Wire(budget, 100, 0.5).run(120, 5_000)
    assert budget.period_s <= 2.0


def test_nothing_follows_an_unanswered_frame_but_one_that_a_key_asked_for() -> None:
    budget = LinkBudget()
    budget.written(0.0, 100)
    budget.answered(0.1)
    assert budget.ready(0)
    budget.written(1.0, 100)
    assert not budget.ready(0)
    assert budget.ready(0, urgent=True)
    budget.written(1.1, 100)
    assert not budget.ready(0, urgent=True)


def test_a_terminal_that_never_answers_is_judged_by_the_queue() -> None:
    budget = LinkBudget()
    for second in range(10):
        assert budget.ready(0)
        assert not budget.ready(DEEP + 1)
        budget.written(float(second), 4_000)
    assert not budget.asks
    budget.skip(DEEP + 1)
    budget.skip(DEEP + 1)
    assert budget.period_s > 0.3
    assert budget.skipped == 2
    for second in range(20):
        budget.written(20.0 + second, 4_000)
    assert budget.period_s == 0.1


def test_an_overdue_answer_is_asked_for_again_but_never_into_a_full_queue() -> None:
    budget = LinkBudget()
    budget.written(0.0, 100)
    budget.answered(0.1)
    budget.written(1.0, 4_000)
    assert not budget.asks_again(2.9, 0)
    assert not budget.asks_again(3.1, 1)
    assert budget.asks_again(3.1, 0)
    assert not budget.asks_again(4.0, 0)
    assert budget.asks_again(5.2, 0)
    budget.answered(31.0)
    assert budget.ready(0)
    assert budget.budget_bytes is None, "a stall says nothing about how much the link bears"
    assert budget.period_s == 0.1
    budget.answered(31.1)
    budget.answered(31.2)
    assert budget.ready(0)


def test_slow_and_fast_are_the_operators_word() -> None:
    slow = LinkBudget("slow", 10)
    assert slow.period_s == 1.0
    assert slow.budget_bytes == SLOW_BYTES
    assert slow.asks
    fast = LinkBudget("fast", 20)
    fast.written(0.0, 1_000_000)
    assert not fast.asks
    assert fast.ready(0)
    assert not fast.ready(DEEP + 1)
    assert fast.budget_bytes is None
    assert fast.period_s == 0.05


def test_the_pace_is_that_of_the_last_seconds() -> None:
    budget = LinkBudget("fast")
    for tenth in range(100):
        budget.written(tenth / 10, 300)
    pace = budget.pace(9.95)
    assert 9 < pace.hz < 11
    assert 2_700 < pace.bytes_per_s < 3_300
    assert budget.pace(60.0) == (0.0, 0.0)
