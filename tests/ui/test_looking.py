"""Keys that look: screens, panes, cursors, filter, pause, alarms, help."""

import dataclasses

from infer_console.state.picture import Environment, Link
from support import pictures
from support.pilot import drive


async def test_the_first_frame_comes_before_any_data() -> None:
    async with drive(pictures.starting("loading weights 40 %"), 80, 24) as driven:
        assert "STARTING" in driven.text
        assert "loading weights 40 %" in driven.text
        await driven.show(pictures.small())
        await driven.wait_for("RUN 9")


async def test_from_fleet_into_a_replica_and_back() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        assert any(line.startswith("▸▲r2") for line in driven.lines)
        await driven.press("enter")
        await driven.wait_for("ROSTER 9")
        assert driven.collector.interest == ("r2",)
        await driven.press("tab")
        assert "▸QUEUE" in driven.text
        await driven.press("j", "j")
        assert any("▸" in line and "7f3c40" in line for line in driven.lines)
        await driven.press("escape")
        await driven.wait_for("── WAITING 44")
        assert driven.collector.interest == ()


async def test_the_cursor_stays_on_its_replica_when_the_order_changes() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j", "s", "s")
        await driven.wait_for("sorted by kv")
        assert any(line.startswith("▸▲r2") for line in driven.lines)
        assert driven.app.look.cursor("fleet", "replicas").id == "r2"


async def test_filter_follows_every_key_and_escape_clears_it() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("2")
        await driven.wait_for("QUEUE")
        driven.app.look.replica = "r2"
        await driven.press("slash", "g", "l", "o", "b")
        await driven.wait_for("filter: glob")
        assert "7f1a77" in driven.text
        assert "7e0c44" not in driven.text
        await driven.press("enter")
        assert "filter: glob" in driven.text
        await driven.press("escape")
        await driven.wait_for("7e0c44")
        assert driven.app.look.filter == ""


async def test_pause_freezes_what_is_shown_and_turns_actions_off() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("p")
        await driven.show(pictures.small())
        assert "eu-west/chat-70b" in driven.text
        assert "PAUSED" in driven.text
        await driven.press("D")
        await driven.wait_for("paused: action keys are off")
        assert driven.collector.commands == []
        await driven.press("p")
        await driven.wait_for("smollm2")


async def test_a_key_that_acts_elsewhere_says_where() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("X")
        await driven.wait_for("X cancel does nothing here: it acts on 2 replica, 3 requests, 4 streams")
        await driven.press("6", "D")
        await driven.wait_for("D drain does nothing here: it acts on 1 fleet, 2 replica")
        assert driven.collector.commands == []


async def test_alarms_are_stepped_through() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("exclamation_mark")
        await driven.wait_for("alarm 1 of 3")
        assert driven.app.look.cursor("fleet", "replicas").id == "r2"
        await driven.press("exclamation_mark")
        assert driven.app.look.cursor("fleet", "replicas").id == "r3"


async def test_help_names_every_key_and_closes() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("question_mark")
        await driven.wait_for("small letters look, capitals act")
        for name in ("take a replica out", "send or stop test traffic", "freeze what is shown"):
            assert name in driven.text
        await driven.press("x")
        await driven.wait("the help gone", lambda: "capitals act" not in driven.text)


async def test_streams_watch_those_with_a_panel() -> None:
    async with drive(pictures.small()) as driven:
        await driven.press("2")
        await driven.wait_for("ROSTER")
        await driven.press("j", "space", "space")
        await driven.press("4")
        await driven.wait_for("text hidden; c shows it")
        assert "The capital of France is Paris." not in driven.text
        assert (driven.collector.streams, driven.collector.content) == (("req-01", "req-02"), False)
        await driven.press("c")
        await driven.wait_for("The capital of France is Paris.")
        assert (driven.collector.streams, driven.collector.content) == (("req-01", "req-02"), True)
        await driven.press("1")
        await driven.wait("no stream watched", lambda: driven.collector.streams == ())


async def test_enter_on_a_request_shows_its_tokens_alone() -> None:
    async with drive(pictures.small()) as driven:
        await driven.press("2")
        await driven.wait_for("ROSTER")
        await driven.press("j", "enter")
        await driven.wait_for("text hidden; c shows it")
        await driven.press("c")
        await driven.wait_for("The capital of France is Paris.")
        assert driven.collector.streams == ("req-01",)
        await driven.press("escape")
        await driven.wait_for("ROSTER")


async def test_lens_changes_the_map() -> None:
    async with drive(pictures.incident()) as driven:
        driven.app.look.replica = "r2"
        await driven.press("2")
        await driven.wait_for("A-z owner")
        await driven.press("v")
        await driven.wait_for("╱ not told")
        await driven.press("v")
        await driven.wait_for("one owner")


async def test_a_lost_link_is_said_and_the_picture_stays() -> None:
    async with drive(pictures.incident()) as driven:
        lost = Link("unix:///x", "lost", age_s=12.0, message="connection refused")
        await driven.show(dataclasses.replace(pictures.incident(), link=lost))
        assert "LOST 12s" in driven.text
        assert "no connection: connection refused" in driven.text
        assert "drain 31/37" in driven.text
        await driven.press("X")
        await driven.press("D")
        await driven.wait_for("there is no connection to the server")
        assert driven.collector.commands == []


async def test_quit_leaves_at_once() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("q")
        assert driven.app.return_code == 0


async def test_quit_asks_where_an_embedded_engine_serves_others() -> None:
    async with drive(pictures.small(totals=pictures.incident().totals), embedded=True) as driven:
        await driven.press("q")
        await driven.wait_for("requests of clients are being served")
        await driven.press("n")
        await driven.wait("the question gone", lambda: "of clients" not in driven.text)
        await driven.press("q", "y")
        assert driven.app.return_code == 0


async def test_quit_does_not_ask_for_test_traffic() -> None:
    async with drive(pictures.small(), embedded=True) as driven:
        await driven.press("q")
        assert driven.app.return_code == 0


async def test_enter_in_the_palette_as_it_opens_ends_nothing() -> None:
    async with drive(pictures.small(), embedded=True) as driven:
        await driven.press("ctrl+p")
        await driven.wait_for("▸ fleet")
        await driven.press("enter")
        await driven.wait("the palette gone", lambda: "Commands" not in driven.text)
        assert driven.app.return_code is None


async def test_leaving_by_the_palette_asks_for_test_traffic_too() -> None:
    small = pictures.small()
    assert small.fleet is not None
    assert small.fleet.traffic.in_flight > 0
    async with drive(small, embedded=True) as driven:
        await driven.press("ctrl+p", "up")
        await driven.type("q")
        await driven.press("enter")
        await driven.wait_for("the test traffic that it runs")
        await driven.press("enter")
        await driven.wait("the question gone", lambda: "Leave?" not in driven.text)
        assert driven.app.return_code is None
        await driven.press("q")
        assert driven.app.return_code == 0


async def test_a_filter_moves_the_cursor_and_gives_it_back() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        assert any(line.startswith("▸▲r2") for line in driven.lines)
        await driven.press("slash", "r", "5", "enter")
        assert any(line.startswith("▸△r5") for line in driven.lines)
        await driven.press("H")
        await driven.wait_for("Headroom r5")
        await driven.press("escape", "escape")
        await driven.wait("the cursor back", lambda: any(line.startswith("▸▲r2") for line in driven.lines))


async def test_map_and_roster_stand_on_the_same_request() -> None:
    async with drive(pictures.incident()) as driven:
        driven.app.look.replica = "r2"
        await driven.press("2")
        await driven.wait_for("ROSTER 9")
        await driven.press("j", "j")
        assert driven.app.look.cursor("replica", "roster").id == "7e0b12"
        await driven.press("tab", "tab")
        await driven.wait_for("▸BLOCKS")
        chosen = driven.app.look.cursor("replica", "roster").id
        assert driven.app.look.cursor("replica", "blocks").id == chosen
        await driven.wait_for("6,362 blk, 21%")
        await driven.press("j")
        assert driven.app.look.cursor("replica", "roster").id == "7e0b90"
        await driven.wait_for("▹ █ 7e0b90")
        await driven.press("tab", "tab", "k")
        assert driven.app.look.cursor("replica", "blocks").id == "7e0b12"


async def test_production_has_its_border_on_every_screen_and_under_every_box() -> None:
    named = Environment(name="eu-west", production=True)
    picture = dataclasses.replace(pictures.incident(), environment=named)
    async with drive(picture, 120, 36) as driven:
        for key in (
            "1",
            "2",
            "3",
            "4",
            "5",
            "6",
            "7",
            "8",
            "question_mark",
            "escape",
            "colon",
            "escape",
            "p",
        ):
            await driven.press(key)
            rows = driven.screen.canvas.rows
            assert (len(rows), {sum(span.cells for span in row) for row in rows}) == (36, {120})
            assert all(row[0].tone == row[-1].tone == "production" for row in rows), key
            for row in (rows[0], rows[-1]):
                assert {span.tone for span in row} == {"production"}, key
