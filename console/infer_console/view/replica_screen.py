"""The Replica screen: one replica's batch, queue and KV blocks."""

from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.alarms import alarm_lines, alarm_rows
from infer_console.view.banner import banner
from infer_console.view.blockmap import block_section
from infer_console.view.events import event_rows
from infer_console.view.frame import ROOMY, bottom_row, start_rows, whole
from infer_console.view.layout import Want, allot, fill
from infer_console.view.look import Look, Size
from infer_console.view.order import queue, roster
from infer_console.view.pool import pool_rows, step_row, why_row
from infer_console.view.queue import queue_section
from infer_console.view.roster import roster_section
from infer_console.view.row import Line, Row, beside
from infer_console.view.slo import targets
from infer_console.view.vital import replica_vitals, vital_row


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
        return whole(top, rows, bottom, width, height)
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
    return whole(top, body, bottom, width, height)


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
    return vital_row(replica_vitals(replica, targets(picture)), width)


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
