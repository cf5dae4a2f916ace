"""The line that says how many replicas the demand calls for."""

from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.look import Look, Size
from infer_console.view.row import plain
from infer_console.view.scaling import scaling_line
from infer_engine.protocol import Fleet, ScalingStatus
from support.pictures import incident


def fleet(recommended: int) -> Fleet:
    because = "KV 94 %; boot 95 s\x1b[2J -> 5 replicas"
    scaling = ScalingStatus(recommended=recommended, because=because, ready=3, least=1, most=64)
    return Fleet(name="x", model="m", scaling=scaling)


def test_it_stands_on_the_fleet_screen_where_the_count_differs() -> None:
    line = scaling_line(incident(fleet=fleet(5)), 80)
    assert line is not None
    assert plain(line).startswith(" SCALE 3 → 5  KV 94 %; boot 95 s")
    assert "\x1b" not in plain(line)
    picture = incident(fleet=fleet(5))
    rows = [plain(row) for row in fleet_screen(picture, Look(), Size(120, 36), picture.at)]
    assert sum(row.startswith(" SCALE 3 → 5") for row in rows) == 1


def test_nothing_is_said_where_there_is_nothing_to_do_or_nothing_known() -> None:
    assert scaling_line(incident(fleet=fleet(3)), 80) is None
    assert scaling_line(incident(fleet=Fleet(name="x", model="m")), 80) is None
