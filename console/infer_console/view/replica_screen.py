"""The Replica screen: one replica's batch, queue and KV blocks, its step and its device."""

from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.alarms import alarm_lines, alarm_rows
from infer_console.view.banner import banner
from infer_console.view.blockmap import block_section
from infer_console.view.events import event_rows
from infer_console.view.frame import ROOMY, bottom_row, start_rows, whole
from infer_console.view.history import STRIP, history_section, strip_row, time_row
from infer_console.view.layout import Section, Want, drawn, fill
from infer_console.view.look import Look, Size
from infer_console.view.order import queue, roster
from infer_console.view.pool import device_row, pool_rows, step_row, why_row
from infer_console.view.proposal import proposal_row
from infer_console.view.queue import queue_section
from infer_console.view.roster import roster_section
from infer_console.view.row import Line, Row, Shown, beside
from infer_console.view.scrubber import until
from infer_console.view.slo import targets
from infer_console.view.vital import replica_vitals, vital_row
from infer_console.view.waiting import is_shed

#: The width from which events stand beside the map, and the map beside roster and queue.
TWO_FROM, WIDE = 100, 220
#: The height from which curves have rows of their own.
TALL = 44
#: The height from which the doctor's proposal, what runs the replica and the time have a row.
PROPOSAL_FROM, DEVICE_FROM, TIME_FROM = 20, 26, 30
SCRUB: Shown = safe("p pause  [ ] scrub")


def replica_screen(
    picture: Picture, look: Look, size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells."""
    width, height = size
    replica = picture.replicas.get(look.replica or "")
    top = [banner(picture, look, width, now, _where(look, replica if width >= 60 else None))]
    bottom = [bottom_row(picture, look, "replica", width, now, notice)]
    if replica is None:
        rows = start_rows(picture, width, height - 2) if picture.totals is None else _gone(look, width)
        return whole(top, rows, bottom, width, height)
    _give_letters(look, look.replica or "", replica)
    top.append(vital_row(replica_vitals(replica, targets(picture)), width))
    proposal = proposal_row(picture, width, look.replica) if height >= PROPOSAL_FROM else None
    bottom = [proposal, *bottom] if proposal is not None else bottom
    room = Size(width, height - len(top) - len(bottom))
    if width >= WIDE and height >= ROOMY:
        body = _two_columns(picture, look, replica, room)
    else:
        body = _one_column(picture, look, replica, size, room)
    return whole(top, body, bottom, width, height)


def _where(look: Look, replica: ReplicaPicture | None) -> SafeText | None:
    if look.replica is None:
        return None
    state = f" {safe(replica.status.state, 12)}" if replica is not None else ""
    return safe(f"{safe_identifier(look.replica)}{state}")


def _two_columns(picture: Picture, look: Look, replica: ReplicaPicture, room: Size) -> list[Row]:
    """Numbers over the whole width; below, requests on the left, blocks and what happened on the right."""
    width, height = room
    above = drawn(_numbers(picture, look, replica, room, 2), height // 3, width, filled=False)
    below = height - len(above)
    left_width = width * 52 // 100
    right_width = width - left_width - 2
    left = drawn(_requests(replica, look, Size(left_width, below), below), below, left_width)
    map_height = min(below * 2 // 3, _map_height(replica, right_width, below))
    right = fill(block_section(replica, look, right_width, map_height), map_height, right_width)
    right += history_section(
        picture, right_width, min(8, below - map_height), replica=look.replica, until=until(look.scrub)
    )
    right += event_rows(picture, look, "replica", right_width, below - len(right), look.replica)
    return above + beside(left, right, left_width, width)


def _one_column(picture: Picture, look: Look, replica: ReplicaPicture, size: Size, room: Size) -> list[Row]:
    """From numbers over requests to blocks, with events beside these or below."""
    width, height = size
    two = width >= TWO_FROM
    map_width = width * 57 // 100 if two else width

    def bottom_rows(given: int) -> list[Row]:
        if not two:
            return fill(block_section(replica, look, width, given), given, width)
        rows = block_section(replica, look, map_width, given)
        feed = event_rows(picture, look, "replica", width - map_width - 2, given, look.replica)
        return beside(rows, feed, map_width, width)

    most = height // 2 if height >= TALL else height // 4 + 1
    blocks = Want("blocks", 4, max(4, min(_map_height(replica, map_width, height), most)), 2)
    sections = [
        *_numbers(picture, look, replica, room, 1),
        *_requests(replica, look, room, height),
        Section(blocks._replace(most=height if two else blocks.most), bottom_rows),
    ]
    if not two:
        sections.append(
            Section(
                Want("events", 1, height, 5),
                lambda given: event_rows(
                    picture, look, "replica", width, given, look.replica, titled=given > 1
                ),
            )
        )
    return drawn(sections, room.height, width)


def _numbers(
    picture: Picture, look: Look, replica: ReplicaPicture, size: Size, columns: int
) -> list[Section]:
    """Alarms, why the head waits, the pool, the step, the device, and what was."""
    width, height = size
    alarms = alarm_lines(picture, width, look.replica)
    tall = height >= TALL - 3 and columns == 1
    # Curves have an axis of their own, and in the past the row of time stands below.
    timed = int(
        height >= TIME_FROM
        and columns == 1
        and not tall
        and look.scrub is None
        and any(series.values for series in replica.history.values())
    )
    return [
        Section(
            Want("alarms", min(alarms, 1), min(alarms, 4 if height >= ROOMY else 2), 3),
            lambda given: alarm_rows(picture, width, given, look.replica),
        ),
        Section(Want("why", 1, 1, 3), lambda given: [why_row(replica, width, is_shed(picture))]),
        Section(Want("pool", 1, 2, 0), lambda given: pool_rows(replica, width, given)),
        Section(Want("step", 1, 1, 5), lambda given: [step_row(replica, width)]),
        Section(
            Want("device", int(height >= DEVICE_FROM), int(height >= DEVICE_FROM), 7),
            lambda given: [device_row(replica, width)],
        ),
        Section(
            Want("history", int(not tall), int(not tall), 6),
            lambda given: [strip_row(replica.history, width, STRIP if width >= TWO_FROM else STRIP[1:])],
        ),
        Section(
            Want("time", timed, timed, 8),
            lambda given: [time_row(picture, width, replica.status.id, SCRUB)],
        ),
        Section(
            Want("curves", 7 if tall else 0, 7 if tall else 0, 6),
            lambda given: history_section(
                picture, width, given, replica=look.replica, until=until(look.scrub)
            ),
        ),
    ]


def _requests(replica: ReplicaPicture, look: Look, size: Size, height: int) -> list[Section]:
    """A long roster or queue leaves room for the others, the roster also for the queue."""
    running, waiting = len(roster(replica, look)), len(queue(replica, look))
    if not running and replica.status.watched_url:
        running = 3  # what such a server does not tell, and what would
    roomy = height >= ROOMY
    roster_most = height * 3 // 8 if roomy and waiting > 3 else height // 2 if roomy else height // 3
    queue_least = 1 + max(1, min(waiting, 6 if roomy else 4))
    roster_least = min(5, 2 + max(1, running))
    return [
        Section(
            Want("roster", roster_least, max(roster_least, min(2 + max(1, running), roster_most)), 1),
            lambda given: fill(roster_section(replica, look, size.width, given), given, size.width),
        ),
        Section(
            Want("queue", queue_least, max(queue_least, min(1 + max(1, waiting), height // 4)), 4),
            lambda given: fill(queue_section(replica, look, size.width, given), given, size.width),
        ),
    ]


def _map_height(replica: ReplicaPicture, width: int, height: int) -> int:
    """Rows in which every block has a cell of its own."""
    total = replica.blocks.total if replica.blocks is not None else 0
    return max(4, min(-(-total // max(1, width - 1)) + 2, height))


def _give_letters(look: Look, id: str, replica: ReplicaPicture) -> None:
    """Owners' letters. A roster that is not there yet says nothing about who has left."""
    if replica.rows or not replica.status.running:
        owners = [request for request in replica.order if replica.rows[request].kv_blocks]
        look.owners.update(id, owners, replica.order)


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
