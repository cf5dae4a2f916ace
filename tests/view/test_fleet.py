"""The Fleet screen's own sections: what was promised, where time went, who uses it, what happened when."""

import dataclasses

import msgspec
import pytest
from infer_console.diagnosis.onset import moved_first
from infer_console.state.finding import Finding
from infer_console.state.picture import Picture, ReplicaPicture, Series
from infer_console.terminal.safe_text import safe
from infer_console.view import replicas
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.history import STRIP, axis_of, axis_row, history_section, strip_row
from infer_console.view.look import FLEET_SORTS, Look, Size
from infer_console.view.marks import Mark, marks
from infer_console.view.order import FLEET_VALUES, pane_ids
from infer_console.view.replicas import columns, replica_table
from infer_console.view.row import Row, plain
from infer_console.view.tenants import tenant_line, tenant_section
from infer_console.view.ttft_split import split_row
from infer_engine.protocol import Slo, TtftSplit, TtftSplits
from support import pictures


def lines(picture: Picture, size: Size, look: Look | None = None) -> list[str]:
    return [plain(row) for row in fleet_screen(picture, look or Look(), size, pictures.NOW)]


def without_slo() -> Picture:
    fleet = pictures.incident().fleet
    assert fleet is not None
    return pictures.incident(fleet=msgspec.structs.replace(fleet, slo=None))


def test_what_is_over_its_promise_is_marked_and_nothing_without_one() -> None:
    rows = lines(pictures.incident(), Size(160, 40))
    assert "TTFT p50 .5s p99 48.0s▲ slo 2" in rows[1]
    assert "ITL p50 33ms p99 240ms▲ slo 80" in rows[1]
    r2 = next(row for row in rows if row.startswith(" ▲r2"))
    assert "48.0▲" in r2
    assert "212▲" in r2
    r0 = next(row for row in rows if row.startswith("  r0"))
    assert "▲" not in r0
    bare = lines(without_slo(), Size(160, 40))
    assert "▲" not in bare[1]
    assert "slo" not in bare[1]
    only = pictures.incident(
        fleet=msgspec.structs.replace(
            pictures.incident().fleet or pytest.fail("fleet"), slo=Slo(ttft_p99_s=60)
        )
    )
    assert "▲" not in lines(only, Size(160, 40))[1]


def test_where_the_slowest_spent_their_time() -> None:
    row = split_row(pictures.incident(), 120)
    assert row is not None
    assert "gateway 0 + tokenize .3 + QUEUE 29.7 + prefill 17.9 + send .1 s" in plain(row)
    narrow = split_row(pictures.incident(), 40)
    assert narrow is not None
    assert plain(narrow).startswith(" slow 1%: QUEUE 29.7 of 48.0s")
    assert split_row(pictures.quiet(), 120) is None
    totals = pictures.incident().totals
    assert totals is not None
    part = msgspec.structs.replace(
        totals, ttft_split_s=TtftSplits(slowest=TtftSplit(queue=1.0), slowest_requests=1, requests=1)
    )
    unknown = split_row(pictures.incident(totals=part), 120)
    assert unknown is not None
    assert "gateway – + tokenize – + QUEUE 1.0" in plain(unknown)


def step(low: float, high: float, at: int, samples: int = 300) -> Series:
    return Series(2.0, tuple(low if index < at else high for index in range(samples)))


def test_which_moved_first() -> None:
    late = {"ttft_p99": step(0.5, 9.0, 200), "itl_p99": step(0.03, 0.2, 260)}
    moved = moved_first(late, 1_000.0)
    assert moved is not None
    assert moved.first == "TTFT"
    assert moved.at == 1_000.0 - 99 * 2.0
    other = {"ttft_p99": step(0.5, 9.0, 260), "itl_p99": step(0.03, 0.2, 200)}
    assert (moved_first(other, 0.0) or pytest.fail("moved")).first == "ITL"
    both = {"ttft_p99": step(0.5, 9.0, 201), "itl_p99": step(0.03, 0.2, 200)}
    assert (moved_first(both, 0.0) or pytest.fail("moved")).first == "TTFT and ITL"


def test_nothing_moved_that_is_level_over_or_not_known() -> None:
    assert moved_first({"ttft_p99": step(0.5, 0.6, 200)}, 0.0) is None
    assert moved_first({"ttft_p99": Series(2.0, (9.0,) * 20)}, 0.0) is None
    over = Series(2.0, (*([0.5] * 100), *([9.0] * 50), *([0.5] * 50)))
    assert moved_first({"ttft_p99": over}, 0.0) is None
    assert moved_first({}, 0.0) is None
    always = Series(2.0, (9.0,) * 300)
    assert moved_first({"ttft_p99": always}, 0.0) is None


def test_tenants_by_what_they_hold() -> None:
    picture = pictures.incident()
    rows = [plain(row) for row in tenant_section(picture, 60, 6)]
    assert rows[2].split() == ["acme", "8", "27", "34%▲", "99,840", "38", "0", "03:04"]
    assert rows[-1].startswith(" 9 others")
    assert rows[3].split()[-2:] == ["0", "–"]
    short = [plain(row) for row in tenant_section(picture, 60, 4)]
    assert short[-1] == " … 11 more hold 32%"
    assert plain(tenant_line(picture, 80)).startswith(" KV BY TENANT acme 34%▲ 8+27w p50 100k │ globex 15%")
    assert plain(tenant_line(picture, 50)).endswith("11 more")


def test_the_axis_says_what_happened_when() -> None:
    picture = pictures.incident()
    axis = axis_of(picture.history, 88, picture.at)
    text = plain(axis_row(axis, marks(picture), 120))[10:]
    assert text.endswith(" now")
    # Of another moment the axis says which.
    assert plain(axis_row(axis, [], 120, "02:59")).endswith(" 02:59")
    began = axis.cell_of(picture.at - 376)
    assert text[began] == "▲"
    assert text[began - 3 : began] == "r2 "
    drain = axis.cell_of(picture.at - 82)
    assert text[drain] == "D"
    quarter = text.index("02:50")
    assert abs(axis.last_at - (87 - quarter) * axis.cell_s - (pictures.NOW - 21 * 60 - 26)) <= axis.cell_s


@pytest.mark.parametrize("ago_s", [0.0, 8.0, 16.0])
def test_what_happens_now_stands_in_the_place_of_the_word(ago_s: float) -> None:
    picture = pictures.incident()
    axis = axis_of(picture.history, 88, picture.at)
    mark = Mark(picture.at - ago_s * axis.cell_s / 8.0, "▲", "crit", safe(""))
    text = plain(axis_row(axis, [mark], 120))[10:]
    assert text.rstrip()[-1] == "▲"
    assert not {"n", "o", "w"} & set(text[-4:])


def test_the_doctors_proposal_stands_above_the_keys() -> None:
    found = (Finding(rule="kv", confidence=0.9, words="r2 and r5 are short of KV"),)
    for size in (Size(120, 36), Size(80, 24)):
        rows = lines(pictures.incident(findings=found), size)
        assert rows[-2].startswith(" doctor: r2 and r5 are short of KV")
    assert not any("doctor:" in row for row in lines(pictures.incident(), Size(120, 36)))


def test_an_empty_history_has_no_axis() -> None:
    rows = lines(pictures.quiet(), Size(120, 36))
    assert not any(row.endswith(" now") for row in rows)


def test_every_order_names_its_column_and_puts_the_unknown_last() -> None:
    picture = pictures.incident()
    keys = {column.key for column in columns(None, True, 4)}
    assert set(FLEET_SORTS) - keys == {"worst"}
    for order in FLEET_SORTS:
        ids = pane_ids(picture, Look(fleet_sort=order), "fleet", "replicas")
        assert len(ids) == 8
        if order in FLEET_VALUES and order not in ("state", "health"):
            assert ids[-1] in ("r7", "r3"), order
    look = Look(fleet_sort="tokens")
    (head,) = [row for row in lines(picture, Size(160, 40), look) if "TOK/S" in row]
    assert "TOK/S▾" in head
    assert pane_ids(picture, look, "fleet", "replicas")[0] == "r4"


def many(count: int) -> Picture:
    model = pictures.incident().replicas["r0"].status
    made = {
        f"r{number}": ReplicaPicture(msgspec.structs.replace(model, id=f"r{number}"))
        for number in range(count)
    }
    return dataclasses.replace(pictures.incident(), replicas=made)


def test_of_a_thousand_replicas_only_those_shown_are_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = many(1_000)
    drawn: list[str] = []
    real = replicas.item_row

    def counted(*given: object, **named: object) -> Row:
        drawn.append("row")
        return real(*given, **named)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(replicas, "item_row", counted)
    rows = lines(picture, Size(120, 36))
    shown = [row for row in rows if " ready       ok " in row]
    assert len(drawn) == len(shown) < 22
    assert any("more replicas (0 above, 9" in row for row in rows)
    look = Look()
    look.cursor("fleet", "replicas").select(pane_ids(picture, look, "fleet", "replicas"), "r500")
    rows = [plain(row) for row in replica_table(picture, look, 120, 20)]
    assert any(row.startswith("▸ r500") for row in rows)
    assert "above" in rows[-1]
    assert "0 of them not ready" in rows[-1]


def split_of(**parts: float) -> str:
    totals = pictures.incident().totals
    assert totals is not None
    slowest = TtftSplit(
        **{"gateway": 0.0, "tokenize": 0.0, "queue": 0.0, "prefill": 0.0, "send": 0.0, **parts}
    )
    picture = pictures.incident(
        totals=msgspec.structs.replace(totals, ttft_split_s=TtftSplits(slowest=slowest))
    )
    row = split_row(picture, 160)
    assert row is not None
    return plain(row)


def test_quick_first_tokens_are_told_in_milliseconds_and_nothing_of_0_is_the_largest() -> None:
    assert "gateway 0 + tokenize 0 + queue 2 + PREFILL 7 + send 0 ms" in split_of(prefill=0.007, queue=0.002)
    assert "gateway 0 + tokenize 0 + queue 0 + prefill <1 + send 0 ms" in split_of(prefill=0.0002)
    assert "queue .2 + PREFILL 1.5 + send 0 s" in split_of(prefill=1.5, queue=0.2, send=0.004)


def test_a_replica_that_runs_nothing_has_no_step_time() -> None:
    picture = pictures.incident()
    r0 = picture.replicas["r0"]
    assert r0.status.step is not None

    def step(running: int, duration_s: float) -> str:
        step = msgspec.structs.replace(r0.status.step or pytest.fail("step"), duration_s=duration_s)
        status = msgspec.structs.replace(r0.status, running=running, waiting=0, step=step)
        shown = dataclasses.replace(picture, replicas={"r0": dataclasses.replace(r0, status=status)})
        head, row = [plain(each) for each in replica_table(shown, Look(), 160, 10)[:2]]
        end = head.index("STEP") + 4
        return row[end - 6 : end].strip()

    assert step(0, 0.0) == "–"
    assert step(4, 0.021) == "21ms"


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (25, "LAST 50s"),
        (49, "LAST 1m38s"),
        (50, "LAST 1m40s"),
        (60, "LAST 2m,"),
        (101, "LAST 3m22s"),
        (330, "LAST 11m,"),
    ],
)
def test_the_span_of_the_history_never_says_more_than_is_shown(samples: int, words: str) -> None:
    history = {"kv": Series(2.0, tuple([0.5] * samples))}
    assert words in plain(history_section(pictures.incident(history=history), 200, 6)[0])


def test_a_part_of_a_request_is_neither_a_full_bar_nor_none() -> None:
    history = {"waiting": Series(2.0, (0.0, 0.2, 0.2, 0.2), 4)}
    strip = plain(strip_row(history, 60, [curve for curve in STRIP if curve.key == "waiting"]))
    assert "max .2" in strip
    assert "▂" in strip
    assert "█" not in strip
    rows = [plain(row) for row in history_section(pictures.incident(history=history), 100, 8)]
    row = next(row for row in rows if row.startswith(" WAIT"))
    assert ".2" in row
    assert "█" not in row


def test_in_the_past_and_without_the_right_nobody_is_told_to_act() -> None:
    quiet = pictures.quiet()
    assert any("press I to inject" in row for row in lines(quiet, Size(120, 36)))
    recording = dataclasses.replace(quiet, link=dataclasses.replace(quiet.link, url="rec.icr"))
    past = "\n".join(lines(recording, Size(120, 36), Look(paused=True)))
    assert "no traffic yet at the moment that is shown" in past
    assert "inject a" not in past
    assert "--connect" not in past
    looking = "\n".join(lines(dataclasses.replace(quiet, read_only=True), Size(120, 36)))
    assert "no traffic yet: send a request" in looking
