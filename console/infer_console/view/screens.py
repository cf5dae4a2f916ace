"""The three screens put together: sections, their heights at any size, and nothing refused for want of
room."""

from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.alarms import alarm_lines, alarm_rows
from infer_console.view.banner import actions_off, banner
from infer_console.view.blockmap import block_section
from infer_console.view.events import event_rows
from infer_console.view.history import history_section
from infer_console.view.keys import key_bar
from infer_console.view.layout import Want, allot, fill, rule
from infer_console.view.look import Look, ScreenName, Size
from infer_console.view.operations import operation_section, shown_operations
from infer_console.view.order import queue, roster
from infer_console.view.pool import pool_rows, step_row, why_row
from infer_console.view.queue import queue_section
from infer_console.view.replicas import replica_table
from infer_console.view.roster import roster_section
from infer_console.view.row import Line, Role, Row, beside
from infer_console.view.scaling import scaling_line
from infer_console.view.streams import stream_rows
from infer_console.view.vital import fleet_vitals, replica_vitals, vital_row
from infer_console.view.waiting import seen_traffic, waiting_height, waiting_line, waiting_section

#: From this height on sections have titles.
ROOMY = 30


def bottom_row(
    picture: Picture, look: Look, screen: ScreenName, width: int, now: float, notice: SafeText | None
) -> Row:
    """The filter being typed, a notice, or the keys."""
    if look.filtering:
        line = (
            Line(width, "bar").put(" filter: ", "label").put(safe(look.filter), "strong").put("▏", "accent")
        )
        return line.right("enter: keep  esc: clear ", "dim").row()
    if notice is not None:
        return Line(width, "bar").put(" ").put(notice, "warn").row()
    why_not = actions_off(picture, look, now)
    return key_bar(screen, width, why_not)


def start_rows(picture: Picture, width: int, height: int) -> list[Row]:
    """What is shown before the first data: what is being waited for."""
    link = picture.link
    words: dict[str, tuple[str, Role]] = {
        "starting": ("starting the engine", "accent"),
        "connecting": ("connecting", "accent"),
        "lost": ("no connection", "crit"),
        "stale": ("the server is silent", "warn"),
        "live": ("waiting for the first picture", "accent"),
    }
    word, role = words[link.state]
    rows = [Line(width).row(), Line(width).put(" ").put(safe(word), role).row()]
    if link.url:
        rows.append(Line(width).put("   ").put(safe(link.url), "dim").row())
    for piece in link.message.splitlines()[-max(1, height - 4) :]:
        rows.append(Line(width).put("   ").put(safe(piece)).row())
    return fill(rows, height, width)


def _whole(top: list[Row], body: list[Row], bottom: list[Row], width: int, height: int) -> list[Row]:
    """Exactly ``height`` rows; on a screen of a few lines the top ones stay."""
    return fill(top + fill(body, max(0, height - len(top) - len(bottom)), width) + bottom, height, width)


def fleet_screen(
    picture: Picture, look: Look, size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells."""
    width, height = size
    top = [banner(picture, look, width, now)]
    bottom = [bottom_row(picture, look, "fleet", width, now, notice)]
    if picture.totals is None:
        return _whole(top, start_rows(picture, width, height - 2), bottom, width, height)
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
    return _whole(top, body, bottom, width, height)


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


def replica_screen(
    picture: Picture, look: Look, size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells."""
    width, height = size
    where = safe_identifier(look.replica) if look.replica else None
    top = [banner(picture, look, width, now, where)]
    bottom = [bottom_row(picture, look, "replica", width, now, notice)]
    replica = picture.replicas.get(look.replica or "")
    if replica is None:
        rows = start_rows(picture, width, height - 2) if picture.totals is None else _gone(look, width)
        return _whole(top, rows, bottom, width, height)
    _give_letters(look, look.replica or "", replica)
    top.append(_replica_vital(picture, look, width))
    running, waiting = len(roster(replica, look)), len(queue(replica, look))
    roomy, two = height >= ROOMY, width >= 100
    alarms = alarm_lines(picture, width, look.replica)
    wants = [
        Want("pool", 1, 2, 0),
        Want("roster", min(5, 2 + max(1, running)), 2 + max(1, running), 1),
        Want("alarms", min(alarms, 1), min(alarms, 4 if roomy else 2), 3),
        Want("why", 1, 1, 3),
        Want("queue", 1 + max(1, min(waiting, 6 if roomy else 4)), 1 + max(1, waiting), 4),
        Want("blocks", 4, _map_height(replica.blocks.total if replica.blocks else 0, width, height, two), 2),
        Want("step", 1, 1, 5),
        Want("events", 0 if two else 2, 0 if two else height, 9),
    ]
    given = allot(height - 3, _capped(wants, height, roomy, waiting))
    body = alarm_rows(picture, width, given["alarms"], look.replica)
    body += [why_row(replica, width)] if given["why"] else []
    body += pool_rows(replica, width, given["pool"])
    body += [step_row(replica, width)] if given["step"] else []
    body += fill(roster_section(replica, look, width, given["roster"]), given["roster"], width)
    body += fill(queue_section(replica, look, width, given["queue"]), given["queue"], width)
    rest = height - 3 - len(body)
    if two:
        left = width * 57 // 100
        map_rows = block_section(replica, look, left, rest)
        feed = event_rows(picture, look, "replica", width - left - 2, rest, look.replica)
        body += beside(map_rows, feed, left, width)
    else:
        map_height = rest - given["events"]
        body += fill(block_section(replica, look, width, map_height), map_height, width)
        body += event_rows(picture, look, "replica", width, given["events"], look.replica)
    return _whole(top, body, bottom, width, height)


def _map_height(total: int, width: int, height: int, two: bool) -> int:
    """Rows at which every block has its own cell, within a third of the screen (half of it where that is
    tall)."""
    per_row = (width * 57 // 100 if two else width) - 1
    wanted = -(-total // max(1, per_row)) + 2
    return max(4, min(wanted, height // 2 if height >= 44 else height // 4 + 1))


def _give_letters(look: Look, id: str, replica: ReplicaPicture) -> None:
    """Owners' letters. A roster that is not there yet says nothing about who has left."""
    if replica.rows or not replica.status.running:
        owners = [request for request in replica.order if replica.rows[request].kv_blocks]
        look.owners.update(id, owners, replica.order)


def _capped(wants: list[Want], height: int, roomy: bool, waiting: int) -> list[Want]:
    """A long roster or queue leaves room for the others, the roster also for the queue."""
    roster_most = height * 3 // 8 if roomy and waiting > 3 else height // 2 if roomy else height // 3
    share = {"roster": roster_most, "queue": height // 4}
    return [
        want._replace(most=max(want.least, min(want.most, share.get(want.name, want.most)))) for want in wants
    ]


def _replica_vital(picture: Picture, look: Look, width: int) -> Row:
    replica = picture.replicas[look.replica or ""]
    return vital_row(replica_vitals(replica), width)


def _gone(look: Look, width: int) -> list[Row]:
    shown = safe_identifier(look.replica) if look.replica else safe("–")
    return [
        Line(width).row(),
        Line(width)
        .put(" replica ")
        .put(shown, "strong")
        .put(" is not part of this fleet (any more)", "warn")
        .row(),
        Line(width).put(" 1 goes back to the fleet", "dim").row(),
    ]


def streams_screen(
    picture: Picture, look: Look, shown: list[str], size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells; ``shown`` are the requests with a panel."""
    width, height = size
    rows = [banner(picture, look, width, now, safe("streams"))]
    picked = safe(f"{len(look.marked)} picked") if look.marked else safe("newest running; space on 2 picks")
    if height >= ROOMY:
        rows.append(rule(width, "STREAMS", safe(str(len(shown))), picked))
    body = height - len(rows) - 1
    rows += stream_rows(picture, shown, look.cursor("streams", "panels").id, width, body)
    return _whole([], rows, [bottom_row(picture, look, "streams", width, now, notice)], width, height)
