"""Keys on the Requests, Streams and Events screens, through the real app."""

import dataclasses

import msgspec
from infer_console.state.picture import Picture
from infer_engine.protocol import Preempt
from support import list_pictures, pictures
from support.pilot import Driven, drive


async def on_requests(driven: Driven) -> None:
    await driven.press("3")
    await driven.wait_for("▸REQUESTS")


async def test_all_requests_are_asked_for_while_they_are_looked_at() -> None:
    async with drive(list_pictures.listed()) as driven:
        assert not driven.collector.listing
        await on_requests(driven)
        assert driven.collector.listing
        assert "24 waiting, 12 running, 6 ended" in driven.text
        assert "not 19 waiting, 174 running" in driven.text
        await driven.press("1")
        await driven.wait("the list given up", lambda: not driven.collector.listing)


async def test_sorted_filtered_and_by_state() -> None:
    async with drive(list_pictures.listed()) as driven:
        await on_requests(driven)
        await driven.press("v", "v")
        await driven.wait_for("only running")
        await driven.press("s", "s")
        await driven.wait_for("sort: kv")
        rows = [line.split()[0].removeprefix("▸") for line in driven.lines if " decode " in line]
        assert rows[:1] == ["7e0b12"] or "7e0b12" in driven.lines[5]
        await driven.press("v", "v")
        await driven.press("slash", *"!acme|globex", "enter")
        await driven.wait_for("filter: !acme|globex")
        assert "initech" in driven.text
        assert " acme " not in driven.text
        await driven.press("escape")
        await driven.wait("the filter gone", lambda: "filter:" not in driven.text)


async def test_the_cursor_follows_its_request_when_others_come() -> None:
    async with drive(list_pictures.listed()) as driven:
        await on_requests(driven)
        await driven.press("j", "j")
        assert any(line.startswith("▸ 7f3b09") for line in driven.lines)
        picture = list_pictures.listed()
        assert picture.listing is not None
        older = msgspec.structs.replace(pictures.QUEUE[0], id="7f0000", age_s=900.0)
        listing = dataclasses.replace(picture.listing, rows=(older, *picture.listing.rows))
        await driven.show(list_pictures.listed(listing=listing))
        assert any(line.startswith("▸ 7f3b09") for line in driven.lines)


async def test_enter_opens_the_timeline_which_stays_live() -> None:
    async with drive(list_pictures.with_timeline(list_pictures.WAITS)) as driven:
        await on_requests(driven)
        await driven.press("j", "enter")
        await driven.wait_for("TIMELINE 7f3b02")
        assert driven.collector.timeline_of == "7f3b02"
        assert "QUEUE 47.1" in driven.text
        assert "routed" in driven.text
        admitted = list_pictures.LIVED
        again = msgspec.structs.replace(admitted, request="7f3b02")
        await driven.show(list_pictures.with_timeline(again))
        await driven.wait_for("preempted")
        await driven.press("k")
        assert any(line.startswith("▸") and "queued" in line for line in driven.lines)
        await driven.press("escape")
        await driven.wait_for("▸REQUESTS")
        assert driven.collector.timeline_of is None
        assert driven.app.look.cursor("requests", "requests").id == "7f3b02"


async def test_a_request_that_is_forgotten_is_told_by_its_events() -> None:
    async with drive(list_pictures.listed()) as driven:
        await on_requests(driven)
        await driven.press("slash", *"7f0002", "enter", "enter")
        await driven.wait_for("TIMELINE 7f0002")
        assert "from the events" in driven.text
        assert "cancelled" in driven.text


async def test_from_a_timeline_to_its_tokens_and_its_replica() -> None:
    async with drive(list_pictures.with_timeline(list_pictures.LIVED)) as driven:
        await on_requests(driven)
        await driven.press("slash", *"7f2a9e", "enter", "enter")
        await driven.wait_for("TIMELINE 7f2a9e")
        await driven.press("4")
        await driven.wait_for("7f2a9e  decode")
        assert driven.collector.streams == ("7f2a9e",)
        assert driven.collector.interest[0] == "r6"


async def test_a_request_is_moved_to_a_replica_of_choice() -> None:
    async with drive(list_pictures.listed()) as driven:
        await on_requests(driven)
        await driven.press("slash", *"7e0c44", "enter", "P")
        await driven.wait_for("stays where it is")
        assert "roomiest first: r6 8,240 blk" in driven.text
        await driven.press("right")
        await driven.wait_for("‹ r6 ›")
        await driven.wait_for("the server's prediction:")
        await driven.press("P")
        await driven.wait("the command", lambda: driven.collector.applied)
        (command, target) = driven.collector.applied[0]
        assert isinstance(command, Preempt)
        assert (command.to, target) == ("r6", "7e0c44")


async def test_a_waiting_request_cannot_be_preempted_and_can_be_cancelled() -> None:
    async with drive(list_pictures.listed()) as driven:
        await on_requests(driven)
        await driven.press("j", "P")
        await driven.wait_for("7f3b02 does not run (waiting)")
        await driven.press("X")
        await driven.wait_for("Cancel 7f3b02")


async def test_text_is_hidden_until_it_is_asked_for_and_again_on_the_next_visit() -> None:
    async with drive(list_pictures.streaming()) as driven:
        await driven.press("4")
        await driven.wait_for("STREAMS")
        assert "Seine" not in driven.text
        assert "█1.4s" in driven.text
        assert not driven.collector.content
        await driven.press("c")
        await driven.wait_for("Seine")
        assert driven.collector.content
        await driven.press("1")
        await driven.press("4")
        await driven.wait_for("text hidden")
        assert "Seine" not in driven.text
        assert not driven.collector.content


async def test_a_viewer_never_sees_text() -> None:
    async with drive(list_pictures.streaming(role="viewer", read_only=True)) as driven:
        await driven.press("4")
        await driven.wait_for("role viewer may not read it")
        await driven.press("c")
        await driven.wait_for("the text stays hidden")
        assert "Seine" not in driven.text
        assert not driven.collector.content


async def test_kinds_are_picked_and_the_list_follows() -> None:
    async with drive(list_pictures.operating()) as driven:
        await driven.press("5")
        await driven.wait_for("▸EVENTS")
        assert any("ADMIT " in line for line in driven.lines)
        await driven.press("f")
        await driven.wait_for("Kinds of events")
        await driven.press("space", "escape")
        await driven.wait_for("not ADMIT")
        assert not any("ADMIT " in line and "7f3c88" in line for line in driven.lines)
        await driven.press("f", "n", "escape")
        await driven.wait_for("no event matches the filter")
        await driven.press("f", "a", "escape")
        await driven.wait_for("7f3c88")


async def test_events_by_replica_and_by_request() -> None:
    async with drive(list_pictures.operating()) as driven:
        await driven.press("5")
        await driven.wait_for("▸EVENTS")
        await driven.press("slash", *"^r3$", "enter")
        await driven.wait_for("filter: ^r3$")
        shown = [line for line in driven.lines if line[1:3] == "03" and " op-" not in line[:8]]
        assert len(shown) == 2
        assert all("r3" in line for line in shown)
        await driven.press("escape", "slash", *"7f1d03", "enter")
        await driven.wait_for("filter: 7f1d03")
        assert sum("7f1d03" in line for line in driven.lines[3:-1]) == 2


async def test_an_operation_in_full_and_live() -> None:
    async with drive(list_pictures.operating()) as driven:
        await driven.press("5", "tab")
        await driven.wait_for("▸OPERATIONS")
        await driven.press("enter")  # what is under way comes first
        await driven.wait_for("Operation op-118")
        assert "waits for   7f2a9e 7f2b00" in driven.text
        assert "31/37" in driven.text
        operations = [
            msgspec.structs.replace(each, done=35) if each.id == "op-118" else each
            for each in list_pictures.OPERATIONS
        ]
        await driven.show(list_pictures.listed(operations=tuple(operations)))
        await driven.wait_for("35/37")
        await driven.press("x")
        await driven.wait("the box gone", lambda: "Operation op-118" not in driven.text)


async def test_enter_on_an_event_opens_what_it_is_about() -> None:
    async with drive(list_pictures.operating()) as driven:
        await driven.press("5")
        await driven.wait_for("▸EVENTS")
        await driven.press("j", "enter")
        await driven.wait_for("TIMELINE 7f2c10")
        assert driven.collector.timeline_of == "7f2c10"
        await driven.press("escape")
        await driven.wait_for("▸EVENTS")
        await driven.press("slash", *"operation", "enter", "g", "enter")
        await driven.wait_for("Operation op-118")


def test_what_is_missing_of_the_feed_is_said() -> None:
    from infer_console.view.events import lost_row
    from infer_console.view.row import plain

    def told(picture: Picture) -> str | None:
        row = lost_row(picture, 120)
        return plain(row) if row is not None else None

    assert told(pictures.incident()) is None
    assert "1,910 earlier ones are not kept here; these begin 03:08:06Z" in (
        told(list_pictures.listed()) or ""
    )
