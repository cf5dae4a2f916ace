"""The tools of the soaks: every request ends in exactly one way, and what grows is seen."""

import asyncio
import os
from dataclasses import replace

import httpx2
import pytest
from soak.footprint import MIB, Growth, footprint, slope
from soak.load import Asked, Ended, Load, Told
from soak.steady import Report, Rest, judged
from support.server import EngineServer, serving

ENDS = {"whole", "refused", "cut", "failed", "lost", "left"}


def ask(server: EngineServer, **how: object) -> Asked:
    url = httpx2.URL(server.gateway_url)
    with server.gateway() as client:
        model = str(client.get("/v1/models").json()["data"][0]["id"])
    known = {"host": url.host, "port": url.port or 80, "model": model, "seconds": 1.0}
    return Asked(**known, **how)  # type: ignore[arg-type]


def test_too_many_requests_end_each_in_one_way() -> None:
    replica = {"max_running": 4, "max_waiting": 4, "kv_blocks": 256}
    with serving(simulate="llama-8b@1xh100", speed=1.0, replica=replica) as server:
        crowd = ask(server, rate_per_s=120.0, answer_tokens=(8, 32), plain_share=0.3)
        told = asyncio.run(Load(crowd).run())
        ends = told.count()
        assert set(ends) <= ENDS
        assert sum(ends.values()) == len(told.ended)
        assert ends["whole"] > 4
        assert ends["refused"] > 4
        assert set(ends) == {"whole", "refused"}
        assert all(each.tokens in (8, 32) for each in told.ended if each.end == "whole")
        assert all(each.retry_after and each.status == 429 for each in told.ended if each.end == "refused")

        deserters = ask(server, clients=2, answer_tokens=(300,), leaving_share=1.0)
        assert set(asyncio.run(Load(deserters).run()).count()) == {"left"}

        hopeless = ask(server, clients=1, answer_tokens=(1_000,), headers={"x-infer-deadline-s": "2"})
        told = asyncio.run(Load(hopeless).run())
        assert set(told.count()) == {"cut"}
        assert {each.reason for each in told.ended} == {"deadline_exceeded"}

        wrong = asyncio.run(Load(ask(server, clients=1, answer_tokens=(1_000_000,))).run())
        assert set(wrong.count()) == {"failed"}


def test_tokens_in_time_are_those_of_whole_requests_that_were() -> None:
    def ended(end: str, asked_s: float, ended_s: float) -> Ended:
        return Ended(end, asked_s, None, ended_s, 10, 200, False, "")  # type: ignore[arg-type]

    soon, late, cut, early = (
        ended("whole", 5, 6),
        ended("whole", 5, 9),
        ended("cut", 5, 6),
        ended("whole", 0, 1),
    )
    told = Told(seconds=10, behind_s=0, ended=[soon, late, cut, early])
    assert told.tokens_in_time(2.0, 5.0, 10.0) == 10 / 5


def test_memory_that_grows_is_a_slope() -> None:
    growth = Growth([0.0, 60.0, 120.0], {"server": [MIB, 9 * MIB, 11 * MIB]})
    assert growth.mib_per_min("server", 60.0) == pytest.approx(2.0)
    assert slope([(1.0, 5.0)]) == 0.0
    own = footprint(os.getpid())
    assert own.rss_bytes > MIB
    assert own.fds > 0
    assert own.threads > 0


def test_what_is_more_at_a_later_rest_is_a_fault() -> None:
    first = Rest(at_s=300.0, fds={"server": 24}, threads={"server": 9}, tasks=19, blocks=0)
    report = Report(20.0, ends={"whole": 5, "left": 1}, moves=1, rss_mib_per_min={"server": 0.2})
    report.rests = [first, replace(first, at_s=600.0)]
    assert judged(report) == []
    for change in ({"fds": {"server": 25}}, {"threads": {"server": 8}}, {"tasks": 20}, {"blocks": 1}):
        report.rests = [first, replace(first, at_s=600.0, **change)]  # type: ignore[arg-type]
        assert judged(report)
    report.rests = [first]
    report.rss_mib_per_min["server"] = 1.2
    assert judged(report) == ["memory of server grows by 1.2 MiB/min"]
