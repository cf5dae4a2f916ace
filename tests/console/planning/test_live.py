"""What the engine does, for beside the theory; what is not known stays unknown."""

import pytest
from infer_console.planning.answer import answer
from infer_console.planning.live import live_figures
from infer_console.planning.question import ask
from infer_console.state.picture import Link, Picture
from support.pictures import NOW, incident

THEORY = answer(ask({"price": "3"}, None))


def test_a_replica_that_is_looked_at() -> None:
    live = live_figures(incident(), "r2")
    assert (live.replica, live.running, live.copies) == ("r2", 9, 1)
    assert live.kv_bytes_per_token == 327_680
    assert live.kv_used_tokens == 27_198 * 16
    floor_s = live.floor_s(THEORY)
    assert floor_s == pytest.approx((140e9 + 27_198 * 16 * 327_680) / 13.4e12)
    # 4 GPUs at 3 an hour, 83 tokens a second.
    assert live.price_per_million(THEORY) == pytest.approx(12 / 3600 / 83 * 1e6)


def test_of_the_fleet_sums_over_the_copies_at_work() -> None:
    picture = incident()
    live = live_figures(picture, None)
    at_work = [each for each in picture.replicas.values() if each.status.running is not None]
    assert (live.replica, live.copies, live.running) == (None, len(at_work), 186)
    assert live.decode_step_s is None
    assert live.price_per_million(THEORY) == pytest.approx(12 * len(at_work) / 3600 / 5_480 * 1e6)


def test_a_replica_that_has_gone_leaves_the_fleet() -> None:
    assert live_figures(incident(), "r99").replica is None


def test_without_an_engine_nothing_is_known() -> None:
    live = live_figures(Picture(at=NOW, link=Link("")), None)
    known = (live.copies, live.running, live.kv_bytes_per_token, live.kv_pool_bytes, live.tokens_per_s)
    assert known == (None, None, None, None, None)
    assert live.floor_s(THEORY) is None
    assert live.price_per_million(THEORY) is None
