"""What the rules make of servers that are not ours, on their recorded pages: what these do not tell must not
be taken for something."""

import re
from collections.abc import Mapping

import msgspec
import pytest
from infer_console.diagnosis.alarms import find_alarms
from infer_console.diagnosis.doctor import Doctor
from infer_console.diagnosis.rules.registry import RULES
from infer_console.diagnosis.sight import SIGHT, nothing_found, seeing
from infer_console.state.finding import Finding
from infer_console.state.picture import Link, Picture, ReplicaPicture
from infer_console.view.doctor_screen import doctor_screen
from infer_console.view.look import Look, Size
from infer_console.view.row import plain
from infer_engine.foreign.adapters import ADAPTERS, read
from infer_engine.foreign.asking import Answer
from infer_engine.foreign.watching import Watching
from infer_engine.protocol import Status
from support.foreign_server import llamacpp_pages, page, vllm_pages
from support.pictures import incident

Pages = Mapping[str, bytes]
AT = 1_772_939_486.0


class Hour:
    """Looks at servers every so many seconds, and a doctor who sees them all."""

    def __init__(self, step_s: int = 1) -> None:
        self._step_s = step_s
        self._watching: dict[str, Watching] = {}
        self._doctor = Doctor()
        self._second = 0
        self.alarms: set[str] = set()
        self.picture: Picture

    def look(self, kind: str, each: Mapping[str, Pages], looks: int) -> tuple[Finding, ...]:
        found: tuple[Finding, ...] = ()
        for _ in range(looks):
            self._second += self._step_s
            told = {name: self._take(kind, name, pages) for name, pages in each.items()}
            replicas = [
                msgspec.structs.replace(row, id=name)
                for name, status in told.items()
                for row in status.replicas
            ]
            first = next(iter(told.values()))
            picture = Picture(
                at=AT + self._second,
                link=Link(url="vllm+http://a", state="live", age_s=0.1),
                read_only=True,
                capabilities=frozenset({"watched", "estimates"}),
                fleet=first.fleet,
                totals=first.totals,
                replicas={row.id: ReplicaPicture(status=row) for row in replicas},
            )
            self.picture = picture
            found = self._doctor.look(picture)
            self.alarms |= {alarm.rule for alarm in find_alarms(picture)}
        return found

    def _take(self, kind: str, name: str, pages: Pages) -> Status:
        adapter = ADAPTERS[kind]  # type: ignore[index]
        answers = {
            path: Answer(path, 200 if path in pages else 404, pages.get(path, b"")) for path in adapter.paths
        }
        watching = self._watching.setdefault(name, Watching(name))
        return watching.take(read(adapter, answers), float(self._second), AT + self._second)


def changed(pages: Pages, *changes: tuple[str, str]) -> dict[str, bytes]:
    """The page with other values: ``(series, value)``, whatever its labels are."""
    text = pages["/metrics"].decode()
    for series, value in changes:
        text, times = re.subn(
            rf"^({re.escape(series)}(?:\{{[^}}]*\}})?) \S+$", rf"\1 {value}", text, flags=re.M
        )
        assert times, series
    return {**pages, "/metrics": text.encode()}


def moving(pages: Pages, second: int) -> dict[str, bytes]:
    """It works: its counter of tokens grows."""
    return changed(pages, ("vllm:generation_tokens_total", str(1000 + 100 * second)))


@pytest.mark.parametrize("kind", ["vllm", "llamacpp"])
def test_healthy_and_busy_is_nothing_to_speak_of(kind: str) -> None:
    hour = Hour(4)
    if kind == "vllm":
        pages = changed(vllm_pages("busy"), ("vllm:num_requests_waiting", "0"))
        for second in range(11):
            both = moving(pages, second)
            assert hour.look(kind, {"a": both, "b": both}, 1) == ()
    else:
        for _ in range(7):  # longer than that it would have stood still
            assert hour.look(kind, {"a": llamacpp_pages("busy")}, 1) == ()
    assert not hour.alarms


def test_an_idle_one_is_healthy() -> None:
    hour = Hour(4)
    assert hour.look("vllm", {"a": vllm_pages("after")}, 11) == ()
    assert not hour.alarms


def test_waiting_at_a_full_pool_is_kv_pressure_and_nothing_about_our_marks() -> None:
    hour, found = Hour(), ()
    pages = changed(
        vllm_pages("busy"), ("vllm:num_requests_waiting", "9"), ("vllm:kv_cache_usage_perc", "0.99")
    )
    for second in range(12):
        found = hour.look("vllm", {"a": moving(pages, second)}, 1)
    (finding,) = found
    assert (finding.rule, finding.replica) == ("kv_pressure", "a")
    assert "99% of the pool is used" in finding.words
    assert finding.action is None  # nobody has a headroom to raise there


def test_a_watched_server_says_how_many_of_the_rules_see_it() -> None:
    """All slots full and two waiting, and no rule says a word: that is no clean bill of health."""
    hour = Hour()
    hour.look("llamacpp", {"a": llamacpp_pages("busy")}, 2)
    few = seeing(hour.picture)
    assert set(SIGHT) == {rule.name for rule in RULES}
    assert 0 < few < len(SIGHT) // 2
    assert "kv_exhaustion" not in {name for name, sight in SIGHT.items() if sight(hour.picture)}
    rows = [plain(row) for row in doctor_screen(hour.picture, Look(), Size(80, 24), hour.picture.at)]
    said = f" nothing found by the {few} of {len(SIGHT)} rules for which this server tells enough"
    assert any(row.startswith(said) for row in rows)
    assert nothing_found(incident()) == "nothing found", "our own tells all"


def test_preemptions_are_counted() -> None:
    hour, found = Hour(), ()
    for second in range(12):
        pages = changed(moving(vllm_pages("busy"), second), ("vllm:num_preemptions_total", str(2 * second)))
        found = hour.look("vllm", {"a": pages}, 1)
    assert [each.rule for each in found] == ["kv_pressure"]
    assert "preempted within 20s" in found[0].words


def test_waiting_with_room_is_no_matter_of_kv() -> None:
    """vLLM's own word for most waits is ``capacity``, which may be slots as well."""
    hour, found = Hour(), ()
    for second in range(12):
        pages = changed(moving(vllm_pages("busy"), second), ("vllm:num_requests_waiting", "9"))
        found = hour.look("vllm", {"a": pages}, 1)
    assert found == ()


def test_one_with_a_queue_beside_an_idle_one() -> None:
    """Whoever sends to them: there is no router of ours, and nothing of ours to drain."""
    hour, found = Hour(), ()
    idle = vllm_pages("after")
    for second in range(12):
        pages = changed(moving(vllm_pages("busy"), second), ("vllm:num_requests_waiting", "9"))
        found = hour.look("vllm", {"a": pages, "b": idle}, 1)
    (finding,) = found
    assert finding.rule == "router_imbalance"
    assert finding.words.startswith("whoever sends to them sends too much to a: 9 wait there")
    assert finding.action is None


def test_a_queue_is_no_imbalance_where_they_may_serve_different_models() -> None:
    hour, found = Hour(), ()
    for second in range(12):
        pages = changed(moving(vllm_pages("busy"), second), ("vllm:num_requests_waiting", "9"))
        pages["/metrics"] += pages["/metrics"].replace(b'"smollm2"', b'"other"')
        pages["/metrics"] = b"\n".join(
            line for line in dict.fromkeys(pages["/metrics"].splitlines()) if not line.startswith(b"#")
        )
        found = hour.look("vllm", {"a": pages, "b": vllm_pages("after")}, 1)
    assert [each for each in found if each.rule == "router_imbalance"] == []


def test_one_that_takes_no_step_is_stalled() -> None:
    hour = Hour(4)
    found = hour.look("vllm", {"a": vllm_pages("busy"), "b": vllm_pages("after")}, 9)
    (finding,) = found
    assert (finding.rule, finding.replica) == ("replica_stalled", "a")
    assert finding.action is None  # it cannot be fenced from here


def test_one_that_is_ill_is_not_said_to_have_a_bad_gpu() -> None:
    adapter = ADAPTERS["vllm"]
    pages = vllm_pages("busy")
    answers = {path: Answer(path, 200, pages[path]) for path in adapter.paths}
    answers["/health"] = Answer("/health", 503, b"")
    watching = Watching("a")
    doctor = Doctor()
    for second in range(3):
        status = watching.take(read(adapter, answers), float(second), AT + second)
        row = status.replicas[0]
        assert (row.state, row.health) == ("failed", "bad")
        picture = Picture(
            at=AT + second,
            link=Link(url="x", state="live", age_s=0.1),
            capabilities=frozenset({"watched"}),
            fleet=status.fleet,
            totals=status.totals,
            replicas={row.id: ReplicaPicture(status=row)},
        )
        assert doctor.look(picture) == ()
        assert {alarm.rule for alarm in find_alarms(picture)} >= {"replica_failed"}


def test_sglang_by_its_documented_names() -> None:
    pages = {"/metrics": page("sglang.metrics")}
    assert Hour().look("sglang", {"a": pages}, 8) == ()
