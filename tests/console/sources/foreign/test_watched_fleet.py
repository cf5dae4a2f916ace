"""Several servers that are not ours as one fleet, over real HTTP."""

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from infer_console.collector import Collector
from infer_console.connect import ConnectError, Target, parse_url, resolve
from infer_console.sources.client import EngineClient
from infer_console.sources.failures import RefusedError, UnreachableError
from infer_console.sources.foreign import fleet, member, names
from infer_console.sources.foreign.names import Resolver, UnresolvedError
from infer_console.state.picture import Picture
from infer_console.watched import Watched, parse_watched, row_names
from infer_engine.foreign import asking
from infer_engine.foreign.estimate import merged, merged_unlike, quantile
from infer_engine.foreign.reading import Reading
from infer_engine.protocol import Replica, Status
from support.certificates import make_certificates, server_context
from support.eventually import eventually
from support.foreign_server import foreign_server, llamacpp_pages, page, vllm_pages

INF = float("inf")


@contextmanager
def watching(target: Target) -> Generator[Callable[[], Picture]]:
    collector = Collector(target)
    collector.start()
    try:
        yield lambda: collector.picture
    finally:
        assert collector.stop(60)


def rows(picture: Picture) -> dict[str, Replica]:
    return {name: shown.status for name, shown in picture.replicas.items()}


def state_of(url: str) -> Status:
    async def look() -> Status:
        async with EngineClient(parse_url(url)) as client:
            return await client.state()

    return asyncio.run(look())


def port(url: str) -> str:
    return url.rpartition(":")[2]


def test_mixed_servers_are_rows_of_one_fleet() -> None:
    with foreign_server(vllm_pages("busy")) as one, foreign_server(llamacpp_pages("busy")) as other:
        found = state_of(f"vllm+{one.url},llamacpp+{other.url}")
        vllm, llama = found.replicas
        assert (vllm.id, llama.id) == (f"127.0.0.1:{port(one.url)}", f"127.0.0.1:{port(other.url)}")
        assert (vllm.foreign, llama.foreign) == ("vLLM", "llama.cpp")
        assert found.fleet.name == "2 servers"
        assert found.totals.replicas == found.totals.ready == 2
        assert found.totals.running == (vllm.running or 0) + (llama.running or 0)
        # By what each can hold, in tokens, whatever a block is.
        held = [each.kv for each in (vllm, llama)]
        used = sum((kv.used or 0) * (kv.block_size or 0) for kv in held)
        total = sum((kv.total or 0) * (kv.block_size or 0) for kv in held)
        assert found.totals.kv_used_ratio == pytest.approx(used / total)
        assert vllm.kv.block_size != llama.kv.block_size


def test_requests_of_two_servers_are_told_apart() -> None:
    async def listed(url: str) -> list[tuple[str, str | None]]:
        async with EngineClient(parse_url(url)) as client:
            return [(row.id, row.replica) for row in (await client.requests()).requests]

    with foreign_server(llamacpp_pages("busy")) as one, foreign_server(llamacpp_pages("busy")) as other:
        found = asyncio.run(listed(f"llamacpp+{one.url},{other.url.removeprefix('http://')}"))
    assert len(found) == len(set(found)) == 8
    assert all(id.startswith("task-") and id.endswith(f"@{replica}") for id, replica in found)


def test_one_that_dies_is_its_own_affair_and_is_found_again() -> None:
    with foreign_server(vllm_pages("before")) as one, foreign_server(vllm_pages("busy")) as other:
        fine, name = (f"127.0.0.1:{port(each.url)}" for each in (one, other))

        def happened() -> set[str | None]:
            return {event.reason for event in picture().events if event.replica == name}

        with watching(parse_url(f"vllm+{one.url},vllm+{other.url}")) as picture:
            eventually(lambda: picture().totals and rows(picture())[name].running == 4)
            other.statuses["/metrics"] = 500
            lost = eventually(
                lambda: rows(picture())[name] if rows(picture())[name].state == "failed" else None
            )
            assert "unreachable: vLLM fails: /metrics answers 500" in (lost.error or "")
            assert (lost.running, lost.kv.used, lost.kv.total) == (None, None, 181)  # what it is, is known
            assert picture().link.state == "live"
            assert rows(picture())[fine].state == "ready"
            eventually(lambda: "failed" in happened())
            other.pages = vllm_pages("before")  # a lower counter: it began anew
            del other.statuses["/metrics"]
            eventually(lambda: rows(picture())[name].state == "ready")
            eventually(lambda: {"ready", "RESTARTED"} <= happened())
            assert rows(picture())[name].incarnation == 1
            assert rows(picture())[fine].incarnation == 0


def test_one_that_hangs_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ANSWER_TIMEOUT_S", 60.0)
    monkeypatch.setattr(member, "LONGEST_LOOK_S", 60.0)
    with foreign_server(vllm_pages("busy")) as one, foreign_server(vllm_pages("busy")) as other:
        other.answering.clear()
        named = parse_url(f"vllm+{one.url},vllm+{other.url}")
        target = dataclasses.replace(named, pace=dataclasses.replace(named.pace, grace_s=0.1))
        first, second = (f"127.0.0.1:{port(each.url)}" for each in (one, other))
        with watching(target) as picture:
            eventually(lambda: picture().totals)
            looks = len([line for line in one.asked if line == "GET /metrics"])
            # The first is asked on and on while the same question to the other one still stands.
            eventually(lambda: len([line for line in one.asked if line == "GET /metrics"]) > looks + 3)
            assert other.asked.count("GET /metrics") == 1
            eventually(lambda: rows(picture())[first].running == 4)
            assert (rows(picture())[second].state, rows(picture())[second].error) == (
                "starting",
                "it has not answered yet",
            )
            other.answering.set()
            eventually(lambda: rows(picture())[second].running == 4)


def test_none_that_answers_is_no_connection() -> None:
    with pytest.raises(UnreachableError, match=r"none of 2 servers answers; 127\.0\.0\.1:1: cannot connect"):
        state_of("vllm+http://127.0.0.1:1,127.0.0.1:2")
    with (
        foreign_server({}) as one,
        foreign_server({}) as other,
        pytest.raises(RefusedError, match="none of 2 servers answers"),
    ):
        state_of(f"vllm+{one.url},vllm+{other.url}")


def test_ranks_of_one_server_among_several() -> None:
    metrics = page("vllm-busy.metrics")
    ranks = metrics + metrics.replace(b'engine="0"', b'engine="1"')
    lines = dict.fromkeys(line for line in ranks.splitlines() if not line.startswith(b"#"))
    pages = {**vllm_pages("busy"), "/metrics": b"\n".join(lines) + b"\n"}
    with foreign_server(pages) as one, foreign_server(vllm_pages("busy")) as other:
        found = state_of(f"vllm+{one.url},vllm+{other.url}")
    base, alone = (f"127.0.0.1:{port(each.url)}" for each in (one, other))
    assert [each.id for each in found.replicas] == [f"{base}/e0", f"{base}/e1", alone]


# --- DNS


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What the resolver answers; a name that is not in it does not exist."""
    known: dict[str, list[str]] = {}

    def look_up(host: str, port: int | None) -> list[str]:
        if host not in known:
            raise OSError(-2, "Name or service not known")
        return known[host]

    class Faked(Resolver):
        def __init__(self, host: str, port: int | None, timeout_s: float) -> None:
            super().__init__(host, port, timeout_s, look_up)

    monkeypatch.setattr(fleet, "Resolver", Faked)
    return known


def test_a_server_per_address_and_they_come_and_go(addresses: dict[str, list[str]]) -> None:
    addresses["vllm.test"] = ["127.0.0.1"]
    with (
        foreign_server(vllm_pages("busy"), host="0.0.0.0") as server,
        watching(parse_url(f"dns+vllm://vllm.test:{port(server.url)}")) as picture,
    ):
        eventually(lambda: picture().totals)
        assert list(rows(picture())) == ["127.0.0.1"]
        assert picture().fleet is not None
        assert picture().fleet.name == f"vllm.test:{port(server.url)}"
        addresses["vllm.test"] = ["127.0.0.1", "127.0.0.2"]
        eventually(lambda: rows(picture()).get("127.0.0.2", None) and rows(picture())["127.0.0.2"].running)
        del addresses["vllm.test"]  # the resolver's trouble takes nothing away
        eventually(lambda: [e for e in picture().events if e.reason == "unresolved"])
        assert set(rows(picture())) == {"127.0.0.1", "127.0.0.2"}
        addresses["vllm.test"] = ["127.0.0.2"]
        eventually(lambda: list(rows(picture())) == ["127.0.0.2"])
        gone = eventually(lambda: [e for e in picture().events if e.reason == "gone"])
        assert (gone[0].replica, gone[0].message) == ("127.0.0.1", "vllm.test has this address no more")
    # Asked for by its name, though by its address.
    assert server.hosts == {f"vllm.test:{port(server.url)}"}


def test_more_addresses_than_are_watched_are_said_once(
    addresses: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "MOST_SERVERS", 2)
    addresses["vllm.test"] = [f"127.0.0.{number}" for number in range(1, 6)]

    async def look(url: str) -> tuple[Status, list[str | None]]:
        async with EngineClient(parse_url(url)) as client:
            status = await client.state()  # which looks twice
            return status, [event.message for event in (await client.events(100)).events]

    with foreign_server(vllm_pages("busy"), host="0.0.0.0") as server:
        status, messages = asyncio.run(look(f"dns+vllm://vllm.test:{port(server.url)}"))
    assert [row.id for row in status.replicas] == ["127.0.0.1", "127.0.0.2"]
    assert messages.count("vllm.test has 5 addresses: 2 servers are watched") == 1


def test_what_nobody_thought_of_is_said_and_old_figures_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(adapter: object, answers: object) -> Reading:
        raise ZeroDivisionError("of nobody's")

    with (
        foreign_server(vllm_pages("before")) as one,
        foreign_server(vllm_pages("busy")) as other,
        watching(parse_url(f"vllm+{one.url},vllm+{other.url}")) as picture,
    ):
        eventually(lambda: [row for row in rows(picture()).values() if row.running is not None])
        monkeypatch.setattr(member, "read", read)
        eventually(lambda: "ZeroDivisionError: of nobody's" in picture().link.message)
        assert picture().link.state != "live"


def test_over_tls_it_is_asked_and_proves_itself_by_its_name(
    addresses: dict[str, list[str]], tmp_path: Path
) -> None:
    """Also where only the address behind the name is spoken to."""
    certificates = make_certificates(tmp_path)
    addresses["fleet.example"] = addresses["other.example"] = ["127.0.0.1"]
    names: set[str | None] = set()

    async def look(url: str, ca_file: Path | None) -> Status:
        target = dataclasses.replace(parse_url(url), ca_file=None if ca_file is None else str(ca_file))
        async with EngineClient(target) as client:
            return await client.state()

    with foreign_server(vllm_pages("busy"), tls=server_context(certificates, names)) as server:
        for scheme, name in (("dns+vllm+https", "fleet.example"), ("vllm+https", "localhost")):
            url = f"{scheme}://{name}:{port(server.url)}"
            names.clear()
            assert asyncio.run(look(url, certificates.ca)).totals.ready == 1
            assert names == {name}
            with pytest.raises(UnreachableError, match="unable to get local issuer certificate"):
                asyncio.run(look(url, None))
        assert server.hosts == {f"{name}:{port(server.url)}" for name in ("fleet.example", "localhost")}
        with pytest.raises(UnreachableError, match=r"certificate is not valid for 'other\.example'"):
            asyncio.run(look(f"dns+vllm+https://other.example:{port(server.url)}", certificates.ca))


def test_a_name_that_is_none_says_so(addresses: dict[str, list[str]]) -> None:
    with pytest.raises(UnreachableError, match=r"nowhere\.test: it cannot be resolved \(Name or service"):
        state_of("dns+sglang://nowhere.test:30000")


def test_a_resolver_that_hangs_is_given_up_and_not_asked_twice() -> None:
    hangs = threading.Event()
    asked: list[str] = []

    def look_up(host: str, port: int | None) -> list[str]:
        asked.append(host)
        hangs.wait(30)
        return ["127.0.0.1"]

    async def ask() -> list[str]:
        resolver = Resolver("slow.test", 1, 0.05, look_up)
        with pytest.raises(UnresolvedError, match=r"slow.test: the resolver does not answer within 0.05 s"):
            await resolver.addresses()
        with pytest.raises(UnresolvedError, match="still does not answer"):
            await resolver.addresses()
        hangs.set()
        await asyncio.to_thread(eventually, lambda: not resolver.busy)
        resolver._timeout_s = 60.0
        return await resolver.addresses()

    assert asyncio.run(ask()) == ["127.0.0.1"]
    assert asked == ["slow.test", "slow.test"]


def test_the_systems_resolver_knows_this_machine() -> None:
    assert "127.0.0.1" in names.look_up("localhost", 80)


# --- names and URLs


def test_an_entry_without_a_scheme_has_that_of_the_one_before() -> None:
    target = parse_url("vllm+http://a:8000, b:8000,sglang+https://c,llamacpp+http://[::1]:8080,a:8000")
    assert [(each.kind, each.tls, each.netloc) for each in target.watched] == [
        ("vllm", False, "a:8000"),
        ("vllm", False, "b:8000"),
        ("sglang", True, "c"),
        ("llamacpp", False, "[::1]:8080"),
        ("llamacpp", False, "a:8000"),
    ][:4]
    assert target.url == "vllm+http://a:8000,b:8000,sglang+https://c,llamacpp+http://[::1]:8080"
    assert parse_url(target.url).watched == target.watched


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("vllm+http://gpu-a.lab:8000,gpu-b.lab:8000", ["gpu-a", "gpu-b"]),
        ("vllm+http://n1.eu:8000,n1.us:8000", ["n1.eu", "n1.us"]),
        ("vllm+http://a:8000,a:8001,b:8000", ["a:8000", "a:8001", "b"]),
        ("vllm+http://10.0.0.7:1,10.0.0.8:1", ["10.0.0.7", "10.0.0.8"]),
        ("vllm+http://[::1]:1,[::1]", ["[::1]:1", "[::1]:80"]),
    ],
)
def test_rows_are_called_as_shortly_as_can_be(url: str, named: list[str]) -> None:
    assert row_names(parse_watched(url)) == named


def test_a_key_goes_to_no_other_machine_in_the_clear() -> None:
    environ = {"INFER_CONSOLE_TOKEN": "s3cret"}
    with pytest.raises(ConnectError, match="not sent in the clear"):
        resolve(["vllm+http://127.0.0.1:1,far:2"], environ)
    found = resolve(["vllm+http://127.0.0.1:1,vllm+https://far:2"], environ)
    assert found is not None
    assert found.token == "s3cret"


# --- percentiles


def test_histograms_with_the_same_bounds_are_added() -> None:
    one, other = {0.1: 5.0, 1.0: 10.0, INF: 10.0}, {0.1: 1.0, 1.0: 2.0, INF: 4.0}
    assert merged_unlike([one, other]) == merged([one, other]) == {0.1: 6.0, 1.0: 12.0, INF: 14.0}
    assert merged_unlike([]) == {}


def test_histograms_with_other_bounds_are_spread_evenly() -> None:
    one = {1.0: 10.0, 2.0: 10.0, INF: 10.0}
    other = {0.5: 0.0, 4.0: 14.0, INF: 16.0}
    found = merged_unlike([one, other])
    # 0.5 is half of the first's bucket; 1 and 2 are 1/7 and 3/7 into the other's; beyond 2 nothing is common.
    assert found == {0.5: 5.0, 1.0: 12.0, 2.0: 16.0, INF: 26.0}
    assert quantile(found, 0.99) == 2.0


def test_servers_that_are_given_twice_are_watched_once() -> None:
    given = Watched("vllm", tls=False, host="a", port=1)
    assert parse_watched("vllm+http://a:1,a:1,vllm+http://a:1") == (given,)
    assert dataclasses.replace(given, dns=True).url == "dns+vllm://a:1"
