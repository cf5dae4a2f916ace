"""Keys that act: dialog, prediction, command, result."""

import dataclasses

import pytest
from infer_console.state.picture import Picture, ReplicaPicture
from infer_engine.protocol import (
    Cancel,
    ChangeTenant,
    Drain,
    Fence,
    FleetSpec,
    Inject,
    Kv,
    Operation,
    Scale,
    SetHeadroom,
    Shed,
    StopInjection,
    Undrain,
)
from msgspec.structs import replace
from support import pictures
from support.dialogs import applied, look_at_r2, open_on
from support.pilot import Driven, drive


async def test_drain_asks_predicts_applies_and_follows() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        await open_on(driven, "D", "Drain r2")
        assert "the server says what drain of r2 will do" in driven.text
        dry, target = driven.collector.commands[0]
        assert isinstance(dry, Drain)
        assert dry.dry_run
        assert target == "r2"
        assert driven.collector.applied == []
        assert "▸[ Close ]" in driven.text
        await driven.press("D")
        await driven.wait_for("✓ accepted; to come:")
        assert "· the server says what drain of r2 will do" in driven.text
        command, target = driven.collector.applied[0]
        assert isinstance(command, Drain)
        assert (command.mode, command.deadline_s, command.force, target) == (None, 300.0, False, "r2")
        assert command.actor
        drain = Operation(
            id="op-7", kind="drain", target="r2", phase="running", started_at=0, done=3, total=9
        )
        await driven.show(dataclasses.replace(pictures.incident(), operations=(drain,)))
        await driven.wait_for("3/9")
        await driven.press("escape")
        await driven.wait("the dialog gone", lambda: "Drain r2" not in driven.text)


async def test_the_dialog_holds_on_to_its_id() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        await open_on(driven, "D", "Drain r2")
        alone = {id: replica for id, replica in pictures.incident_replicas().items() if id != "r3"}
        await driven.show(dataclasses.replace(pictures.incident(), replicas=alone, alarms=()))
        assert "Drain r2" in driven.text
        await driven.press("D")
        await driven.wait("the command", lambda: driven.collector.applied)
        assert driven.collector.applied[0][1] == "r2"


async def test_parameters_are_edited_and_asked_about_again() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        await open_on(driven, "D", "Drain r2")
        await driven.press("down", "down", "right", "right", "right")
        await driven.wait_for("loses work")
        await driven.press("down", "4", "5", "s")
        await driven.wait(
            "the new question",
            lambda: isinstance(last := driven.collector.commands[-1][0], Drain) and last.deadline_s == 45,
        )
        last = driven.collector.commands[-1][0]
        assert isinstance(last, Drain)
        assert last.mode == "cancel"


async def test_what_destroys_work_waits_for_a_second_word() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        await open_on(driven, "D", "Drain r2")
        await driven.press("down", "down", "right", "right", "right", "enter")
        assert driven.collector.applied == []
        assert "▸[ Close ]" in driven.text
        assert "type r2" in driven.text
        await driven.press("right")
        await driven.wait_for("the server's prediction")
        await driven.press("enter")
        await driven.wait_for("it takes effect with r2 typed to confirm")
        await driven.press("D", "enter")
        assert driven.collector.applied == []
        await driven.press("backspace", "r", "2", "enter")
        await driven.wait("the command", lambda: driven.collector.applied)


async def test_force_wants_the_id_typed() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        await open_on(driven, "D", "Drain r2")
        assert "type r2" not in driven.text
        while "▸ force" not in driven.text:
            await driven.press("down")
        await driven.press("space")
        await driven.wait_for("type r2")
        await driven.wait_for("the server's prediction")
        await driven.press("enter", "r", "3", "enter")
        assert driven.collector.applied == []
        await driven.press("backspace", "2")
        await driven.wait_for("the server's prediction")
        await driven.press("enter")
        command, _ = await applied(driven, Drain)
        assert command.force


async def test_headroom_by_arrows_and_digits_for_one_or_all() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        await open_on(driven, "H", "Headroom r2")
        assert "10%" in driven.text
        await driven.press("right", "right")
        await driven.wait_for("12%")
        await driven.type("25")
        await driven.press("down", "down", "down", "right")
        await driven.wait_for("Headroom: all 8 replicas")
        assert "type 8" in driven.text
        await driven.press("enter")
        assert "▸[ Close ]" in driven.text
        assert driven.collector.applied == []
        await driven.wait_for("the server's prediction")
        await driven.press("8", "enter")
        command, target = await applied(driven, SetHeadroom)
        assert (command.percent, command.replica, target) == (25.0, None, None)


async def test_a_value_that_does_not_fit_is_named() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        await open_on(driven, "H", "Headroom r2")
        await driven.type("250")
        await driven.press("enter")
        await driven.wait_for("headroom: '250' was given, allowed is 0% to 100%")
        assert driven.collector.applied == []


async def test_inject_and_stop() -> None:
    async with drive(pictures.quiet()) as driven:
        await open_on(driven, "I", "Inject test traffic")
        await driven.press("down", "right", "down", "right")
        await driven.wait_for("the server's prediction")
        await driven.press("I")
        command, _ = await applied(driven, Inject)
        assert (command.profile, command.rate_per_s, command.duration_s) == ("chat", 2.0, 120.0)
        await driven.press("enter")
        await driven.show(pictures.small())
        await open_on(driven, "I", "Stop test traffic")
        await driven.press("I")
        await applied(driven, StopInjection, number=2)


async def test_cancel_starts_on_close() -> None:
    async with drive(pictures.incident()) as driven:
        await look_at_r2(driven)
        await driven.press("j", "j")
        await open_on(driven, "X", "Cancel 7e0b12")
        await driven.press("enter")
        await driven.wait("the dialog gone", lambda: "Cancel 7e0b12" not in driven.text)
        assert driven.collector.applied == []
        await open_on(driven, "X", "Cancel 7e0b12")
        await driven.type("7e0b12")
        await driven.press("enter")
        _, target = await applied(driven, Cancel)
        assert target == "7e0b12"


async def test_cancel_says_so_when_its_request_has_just_ended() -> None:
    async with drive(pictures.incident()) as driven:
        await look_at_r2(driven)
        await driven.press("j")
        picture = pictures.incident()
        replica = picture.replicas["r2"]
        order = tuple(id for id in replica.order if id != "7e0c44")
        rows = {id: replica.rows[id] for id in order}
        gone = ReplicaPicture(replica.status, rows, order, replica.blocks)
        await driven.show(dataclasses.replace(picture, replicas=picture.replicas | {"r2": gone}))
        await driven.press("X")
        await driven.wait_for("no request is selected")
        assert driven.collector.commands == []


async def test_undrain_where_it_makes_sense() -> None:
    async with drive(pictures.incident()) as driven:
        await open_on(driven, "U", "Undrain r3")
        await driven.press("U")
        await applied(driven, Undrain)
        driven.app.acting.undos.clear()
        await driven.press("enter", "j", "U")
        await driven.wait_for("r2 is ready, not draining or drained")


async def test_user_text_never_stands_in_a_dialog() -> None:
    async with drive(pictures.incident()) as driven:
        await look_at_r2(driven)
        await open_on(driven, "X", "Cancel 7f3a91")
        box = [
            line[line.index("│") : line.rindex("│")]
            for line in driven.lines
            if line.count("│") >= 2 and "┌" not in line
        ]
        assert box
        assert not any("acme" in line for line in box)


@pytest.mark.parametrize("key", ["H", "D"])
async def test_without_a_cursor_nothing_is_done_to_the_whole_fleet(key: str) -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("slash", "z", "z", "enter", key)
        await driven.wait_for("no replica is selected; j and k move the cursor")
        assert driven.collector.commands == []


async def test_headroom_as_it_is_changes_nothing() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        await open_on(driven, "H", "Headroom r2")
        assert "more headroom admits fewer, less admits more" in driven.text
        assert "no change" in driven.text
        assert "▸ headroom" in driven.text
        await driven.press("right")
        await driven.wait_for("11%")
        assert "no change" not in driven.text
        await driven.press("enter")
        assert "▸[ Close ]" in driven.text
        assert driven.collector.applied == []


async def test_a_drain_that_cancels_at_its_deadline_loses_work() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        await open_on(driven, "D", "Drain r2")
        assert "reversible" in driven.text
        while "▸ at the deadline" not in driven.text:
            await driven.press("down")
        await driven.press("right")
        assert "loses work" in driven.text
        assert "type r2" in driven.text


async def test_the_title_names_the_whole_fleet() -> None:
    async with drive(pictures.quiet()) as driven:
        await open_on(driven, "I", "Inject test traffic: the whole fleet")
        assert "TTFT p99 –" in driven.text


async def test_what_was_done_is_seen_to_come_about_and_is_taken_back() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        await open_on(driven, "D", "Drain r2")
        await driven.press("D")
        await driven.wait_for("U undo: undrain r2")
        assert "… r2 is ready" in driven.text
        shown = pictures.incident_replicas()
        drained = dataclasses.replace(
            shown["r2"],
            status=replace(shown["r2"].status, state="drained", running=0, kv=Kv(total=9, used=0)),
        )
        await driven.show(dataclasses.replace(pictures.incident(), replicas=shown | {"r2": drained}))
        await driven.wait_for("✓ seen: r2 is drained: 0 running, 0 blocks held")
        await driven.press("U")
        await driven.wait_for("Undrain r2")
        await driven.wait_for("the server's prediction")
        await driven.press("U")
        await applied(driven, Undrain, number=2)


async def test_a_broken_replica_is_fenced_with_its_id() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        await open_on(driven, "F", "Fence r2")
        await driven.press("enter")
        assert driven.collector.applied == []
        await open_on(driven, "F", "Fence r2")
        await driven.type("r2")
        await driven.press("enter")
        _, target = await applied(driven, Fence)
        assert target == "r2"


async def test_the_tenant_of_the_request_under_the_cursor_is_limited() -> None:
    async with drive(pictures.incident()) as driven:
        await look_at_r2(driven)
        await driven.press("T")
        await driven.wait_for("Limit tenant acme")
        assert "no change" in driven.text
        while "▸ long prefills" not in driven.text:
            await driven.press("down")
        await driven.press("1")
        await driven.wait_for("the server's prediction")
        await driven.press("T")
        command, target = await applied(driven, ChangeTenant)
        assert (command.limits, target) == ({"long_prefills": 1}, "acme")


async def test_scaling_down_wants_the_number_typed() -> None:
    spec = FleetSpec(replicas=8)
    picture = pictures.incident()
    assert picture.fleet is not None
    async with drive(dataclasses.replace(picture, fleet=replace(picture.fleet, spec=spec))) as driven:
        await open_on(driven, "S", "Scale")
        await driven.press("left")
        await driven.wait_for("type 7")
        await driven.press("S")
        await driven.wait_for("type 7 to confirm")
        assert driven.collector.applied == []
        await driven.wait_for("the server's prediction")
        await driven.press("enter", "7", "enter")
        command, _ = await applied(driven, Scale)
        assert command.replicas == 7


async def test_shedding_goes_on_and_off_by_one_key() -> None:
    picture = pictures.incident()
    assert picture.fleet is not None
    async with drive(picture) as driven:
        await open_on(driven, "B", "Shed batch")
        await driven.press("B")
        await driven.wait("the command", lambda: driven.collector.applied)
        await driven.press("enter")
        shed = replace(picture.fleet, spec=FleetSpec(replicas=8, shed=True))
        await driven.show(dataclasses.replace(picture, fleet=shed))
        await open_on(driven, "B", "Stop shedding")
        await driven.press("B")
        await driven.wait("the second", lambda: len(driven.collector.applied) == 2)
        first, second = (command for command, _ in driven.collector.applied)
        assert isinstance(first, Shed)
        assert isinstance(second, Shed)
        assert (first.on, second.on) == (True, False)


async def test_the_key_that_opened_an_undo_confirms_it_and_nothing_is_typed() -> None:
    async with drive(pictures.incident()) as driven:
        await driven.press("j")
        await open_on(driven, "H", "Headroom r2")
        await driven.press("1", "5", "%")
        await driven.wait("asked about 15%", lambda: _asked_percent(driven) == 15)
        await driven.wait_for("the server's prediction")
        await driven.press("H")
        await driven.wait_for("U undo: headroom r2")
        await driven.press("U")
        await driven.wait_for("U or H again applies")
        await driven.show(_with_headroom(pictures.incident(), "r2", 15))
        await driven.press("escape")  # who only looks at the plan has not taken it back
        await driven.wait("the dialog gone", lambda: "again applies" not in driven.text)
        await driven.press("U")
        await driven.wait_for("the server's prediction")
        assert "U or H again applies" in driven.text
        assert "▸[ Close ]" in driven.text
        before = driven.text
        await driven.press("2")
        assert driven.text == before
        await driven.press("U")
        command, target = await applied(driven, SetHeadroom, number=2)
        assert (command.blocks, target) == (_headroom_of(pictures.incident(), "r2"), "r2")
        await driven.wait("no first one left", lambda: len(driven.app.acting.undos) == 1)
        assert driven.app.acting.undos[0].given["headroom"] != f"{command.blocks}b"
        await driven.press("enter", "U")
        await driven.wait_for("Headroom r2")
        await driven.press("escape")  # it is as this would have made it
        await driven.wait("nothing left", lambda: not driven.app.acting.undos)


def _asked_percent(driven: Driven) -> float | None:
    command, _ = driven.collector.commands[-1]
    return command.percent if isinstance(command, SetHeadroom) else None


def _with_headroom(picture: Picture, replica: str, percent: int) -> Picture:
    shown = picture.replicas[replica]
    total = shown.status.kv.total or 0
    kv = replace(shown.status.kv, admit_limit=total * (100 - percent) // 100)
    moved = dataclasses.replace(shown, status=replace(shown.status, kv=kv))
    return dataclasses.replace(picture, replicas=picture.replicas | {replica: moved})


def _headroom_of(picture: Picture, replica: str) -> int:
    kv = picture.replicas[replica].status.kv
    assert kv.total is not None
    assert kv.admit_limit is not None
    return kv.total - kv.admit_limit


async def test_nothing_to_take_back_is_said() -> None:
    async with drive(pictures.quiet()) as driven:
        driven.app.acting.undo()
        await driven.wait_for("nothing was done from here")
