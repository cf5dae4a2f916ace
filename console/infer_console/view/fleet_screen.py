"""The Fleet screen: all replicas, who waits and why, and what happened."""

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.alarms import alarm_lines, alarm_rows
from infer_console.view.banner import banner
from infer_console.view.events import event_rows
from infer_console.view.frame import ROOMY, bottom_row, start_rows, whole
from infer_console.view.history import history_section
from infer_console.view.layout import Want, allot, fill
from infer_console.view.look import Look, Size
from infer_console.view.operations import operation_section, shown_operations
from infer_console.view.replicas import replica_table
from infer_console.view.row import Line, Row
from infer_console.view.scaling import scaling_line
from infer_console.view.vital import fleet_vitals, vital_row
from infer_console.view.waiting import seen_traffic, waiting_height, waiting_line, waiting_section


def fleet_screen(
    picture: Picture, look: Look, size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells."""
    width, height = size
    top = [banner(picture, look, width, now)]
    bottom = [bottom_row(picture, look, "fleet", width, now, notice)]
    if picture.totals is None:
        return whole(top, start_rows(picture, width, height - 2), bottom, width, height)
    top.append(_vital(picture, width))
    given = allot(height - 3, _fleet_wants(picture, look, size, now))
    roomy = height >= ROOMY
    body = alarm_rows(picture, width, given["alarms"])
    if given["calm"]:
        body.append(_calm(picture, width))
    scaling = scaling_line(picture, width)
    if given["scaling"] and scaling is not None:
        body.append(scaling)
    body += replica_table(picture, look, width, given["replicas"])
    if given["waiting"]:
        large = given["waiting"] > 1
        body += fill(
            waiting_section(picture, width, given["waiting"]) if large else [waiting_line(picture, width)],
            given["waiting"],
            width,
        )
    body += history_section(picture.history, width, given["history"], titled=roomy)
    body += operation_section(picture, width, given["operations"], now, titled=roomy)
    body += event_rows(picture, look, "fleet", width, given["events"])
    return whole(top, body, bottom, width, height)


def _fleet_wants(picture: Picture, look: Look, size: Size, now: float) -> list[Want]:
    width, height = size
    roomy = height >= ROOMY
    alarms = alarm_lines(picture, width)
    replicas = max(1, len(picture.replicas)) + (2 if look.filter else 1)
    operations = len(shown_operations(picture, now))
    titles = 1 if roomy else 0
    scaling = int(scaling_line(picture, width) is not None)
    # Traffic facts stand beside the reasons, so the section is as tall as the taller of them.
    large = roomy or not seen_traffic(picture)
    waiting = max(6, waiting_height(picture, width)) if large else 1
    return [
        Want("replicas", min(replicas, 3), min(replicas, max(3, height // 2)), 0),
        Want("alarms", min(alarms, 2), min(alarms, 5 if roomy else 3), 1),
        Want("calm", 0 if alarms else 1, 0 if alarms else 1, 6),
        Want("scaling", scaling, scaling, 4),
        Want("waiting", min(waiting, 4), min(waiting, height // 3), 2),
        Want("events", 3 if height >= 18 else 0, height, 9),
        Want(
            "operations",
            min(operations, 1) + titles if operations else 0,
            min(operations, 4) + titles if operations else 0,
            3,
        ),
        Want(
            "history",
            2 + titles if height >= 18 else 0,
            (5 if height >= 44 else 4) + titles if roomy else 2,
            5,
        ),
    ]


def _vital(picture: Picture, width: int) -> Row:
    return vital_row(fleet_vitals(picture), width)


def _calm(picture: Picture, width: int) -> Row:
    """No alarm is said in words: an empty line could also mean that nobody looks."""
    line = Line(width).put(" no alarm", "ok")
    if picture.link.message:
        line.put("   ").put(safe(picture.link.message), "dim")
    return line.row()
