"""The line that says how many replicas the demand calls for."""

import dataclasses

from infer_console.state.finding import Finding, Proposal
from infer_console.state.picture import Picture
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.look import Look, Size
from infer_console.view.row import plain
from infer_console.view.scaling import scaling_line
from infer_engine.protocol import Fleet, ScalingStatus
from msgspec.structs import replace
from support.pictures import incident


def fleet(recommended: int) -> Fleet:
    because = "KV 94 %; boot 95 s\x1b[2J → 5 replicas"
    scaling = ScalingStatus(recommended=recommended, because=because, ready=3, least=1, most=64)
    return Fleet(name="x", model="m", scaling=scaling)


def scaled(recommended: int) -> Picture:
    """Three are ready, as the advice has it, and r7 is starting."""
    picture = incident(fleet=fleet(recommended))
    ready = [name for name, each in picture.replicas.items() if each.status.state == "ready"][:3]
    return dataclasses.replace(picture, replicas={name: picture.replicas[name] for name in (*ready, "r7")})


def settled(recommended: int) -> Picture:
    """Nobody is starting."""
    picture = scaled(recommended)
    there = {name: each for name, each in picture.replicas.items() if name != "r7"}
    return dataclasses.replace(picture, replicas=there)


def test_it_stands_on_the_fleet_screen_where_the_count_differs() -> None:
    line = scaling_line(settled(5), 80)
    assert line is not None
    assert plain(line).startswith(" SCALE 3 → 5  KV 94 %; boot 95 s")
    assert "\x1b" not in plain(line)
    picture = settled(5)
    rows = [plain(row) for row in fleet_screen(picture, Look(), Size(120, 36), picture.at)]
    assert sum(row.startswith(" SCALE 3 → 5  ") for row in rows) == 1


def test_what_is_coming_is_no_advice() -> None:
    assert scaling_line(scaled(4), 120) is None
    line = scaling_line(scaled(5), 120)
    assert line is not None
    assert plain(line).startswith(" SCALE 3 + r7 starting → 5  KV 94 %")


def test_one_that_was_lost_since_the_advice_is_no_advice_to_have_fewer() -> None:
    """The advice is of a moment in which more were ready, or fewer were there."""
    assert scaling_line(scaled(3), 120) is None
    picture = settled(2)
    less = dict(list(picture.replicas.items())[1:])
    assert scaling_line(dataclasses.replace(picture, replicas=less), 120) is None
    line = scaling_line(picture, 120)
    assert line is not None
    assert plain(line).startswith(" SCALE 3 → 2  ")


def test_fewer_are_not_advised_while_the_doctor_asks_for_more() -> None:
    more = Proposal(name="scale", params={"replicas": "4"}, words="scale 3→4", effect="room")
    found = (Finding(rule="kv_exhaustion", confidence=0.9, words="KV is exhausted in 13 s", action=more),)
    assert scaling_line(dataclasses.replace(settled(2), findings=found), 120) is None
    assert scaling_line(dataclasses.replace(settled(5), findings=found), 120) is not None


def test_how_many_upstreams_there_are_is_not_ours_to_say() -> None:
    picture = incident(fleet=fleet(5))
    upstreams = {
        name: dataclasses.replace(each, status=replace(each.status, launcher="upstream"))
        for name, each in picture.replicas.items()
    }
    assert scaling_line(dataclasses.replace(picture, replicas=upstreams), 120) is None


def test_nothing_is_said_where_there_is_nothing_to_do_or_nothing_known() -> None:
    assert scaling_line(settled(3), 80) is None
    assert scaling_line(incident(fleet=Fleet(name="x", model="m")), 80) is None
