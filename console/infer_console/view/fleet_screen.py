"""The Fleet screen: all replicas, who waits and why, who causes it, and what happened."""

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.alarms import alarm_lines, alarm_rows
from infer_console.view.banner import banner
from infer_console.view.events import event_rows
from infer_console.view.frame import ROOMY, bottom_row, start_rows, whole
from infer_console.view.history import CURVES, history_section
from infer_console.view.layout import Section, Want, drawn
from infer_console.view.look import Look, Size
from infer_console.view.operations import operation_section, shown_operations
from infer_console.view.proposal import proposal_row
from infer_console.view.replicas import replica_table
from infer_console.view.row import Line, Row, beside
from infer_console.view.scaling import scaling_line
from infer_console.view.scrubber import until
from infer_console.view.tenants import by_use, tenant_line, tenant_section
from infer_console.view.traffic import gateway_row, has_test, test_rows, traffic_section
from infer_console.view.ttft_split import split_row
from infer_console.view.vital import fleet_vitals, vital_row
from infer_console.view.waiters import waiters
from infer_console.view.waiting import hint_section, reasons, seen_traffic, waiting_line, waiting_section

#: The width from which tenants stand beside the reasons, traffic beside the tenants, and all that happened
#: beside all that is.
TENANTS_FROM, TRAFFIC_FROM, WIDE = 100, 190, 220
#: Who waits, beyond one for each reason, and from which height.
MORE_WAITERS, MORE_FROM = 3, 44
#: Rows from which the split of the slow ones has a place.
SPLIT_FROM = 14


def fleet_screen(
    picture: Picture, look: Look, size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells."""
    width, height = size
    top = [banner(picture, look, width, now)]
    bottom = [bottom_row(picture, look, "fleet", width, now, notice)]
    if picture.totals is None:
        return whole(top, start_rows(picture, width, height - 2), bottom, width, height)
    top.append(vital_row(fleet_vitals(picture), width))
    split = split_row(picture, width) if height >= SPLIT_FROM else None
    top += [split] if split is not None else []
    proposal = proposal_row(picture, width) if height >= SPLIT_FROM else None
    bottom = [proposal, *bottom] if proposal is not None else bottom
    room = height - len(top) - len(bottom)
    if width >= WIDE and height >= ROOMY:
        body = _two_columns(picture, look, Size(width, room), now)
    else:
        is_, was = _is(picture, look, size), _was(picture, look, size, now)
        body = drawn([*_wrong(picture, size), *is_, *was], room, width)
    return whole(top, body, bottom, width, height)


def _two_columns(picture: Picture, look: Look, room: Size, now: float) -> list[Row]:
    """What is on the left, what was on the right."""
    wrong = drawn(_wrong(picture, room), room.height // 3, room.width, filled=False)
    left_width = room.width * 60 // 100
    below = Size(left_width, room.height - len(wrong))
    right = Size(room.width - left_width - 2, below.height)
    left_rows = drawn(_is(picture, look, below), below.height, below.width)
    right_rows = drawn(_was(picture, look, right, now), right.height, right.width)
    return wrong + beside(left_rows, right_rows, left_width, room.width)


def _wrong(picture: Picture, size: Size) -> list[Section]:
    """Alarms, or that there are none; and what is advised."""
    width, height = size
    alarms = alarm_lines(picture, width)
    most = 6 if height >= MORE_FROM else 5 if height >= ROOMY else 3 if height >= SPLIT_FROM else 1
    least = 2 if height >= SPLIT_FROM else 1
    scaling = scaling_line(picture, width)
    return [
        Section(
            Want("alarms", min(alarms, least), min(alarms, most), 1),
            lambda given: alarm_rows(picture, width, given),
        ),
        Section(Want("calm", int(not alarms), int(not alarms), 6), lambda given: [_calm(picture, width)]),
        Section(
            Want("scaling", int(scaling is not None), int(scaling is not None), 4),
            lambda given: [scaling] if scaling is not None else [],
        ),
    ]


def _is(picture: Picture, look: Look, size: Size) -> list[Section]:
    """What is: replicas, who waits, who uses it all, the gateway."""
    width, height = size
    replicas = max(1, len(picture.replicas)) + (2 if look.filter else 1)
    replicas += picture.link.state == "lost"
    most = max(3, height // 2 if len(picture.replicas) <= height else height * 3 // 5)
    table = Section(
        Want("replicas", min(replicas, 4), min(replicas, most), 0),
        lambda given: replica_table(picture, look, width, given),
    )
    if not seen_traffic(picture):
        past = look.paused
        hint = Section(
            Want("hint", 2, 2, 2) if past else Want("hint", min(6, height // 3), min(8, height // 2), 2),
            lambda given: hint_section(picture, width, given, past),
        )
        return [table, hint]
    return [table, *(_use(picture, size) if height >= ROOMY else _use_lines(picture, width))]


def _use(picture: Picture, size: Size) -> list[Section]:
    """Reasons and tenants as tables."""
    width, height = size
    # Each reason names one; where no event gives way to them, a few more that wait are named below.
    more = MORE_WAITERS if height >= MORE_FROM else 0
    named = len(reasons(picture.totals)) + min(more, len(waiters(picture)))
    wanted = 1 + max(4, named, 1 + len(by_use(picture)))
    wanted = min(wanted, max(7, height // 5))
    beside_it = width >= TENANTS_FROM
    sections = [
        Section(
            Want("waiting", 5, wanted if beside_it else 1 + max(3, named), 2),
            lambda given: _use_rows(picture, width, given),
        )
    ]
    if not beside_it:
        sections.append(
            Section(Want("tenants", 4, wanted, 5), lambda given: tenant_section(picture, width, given))
        )
    if width < TRAFFIC_FROM:
        sections.append(Section(Want("gateway", 1, 1, 6), lambda given: [gateway_row(picture, width)]))
        test = test_rows(picture, width) if has_test(picture) else []
        sections.append(Section(Want("test", min(1, len(test)), len(test), 6), lambda given: test))
    return sections


def _use_rows(picture: Picture, width: int, height: int) -> list[Row]:
    """Reasons, tenants and traffic, as many of them beside each other as there is room for."""
    if width < TENANTS_FROM:
        return waiting_section(picture, width, height)
    if width < TRAFFIC_FROM:
        left = width * 52 // 100
        return beside(
            waiting_section(picture, left, height),
            tenant_section(picture, width - left - 1, height),
            left,
            width,
            " ",
        )
    third = width // 3
    two = beside(
        waiting_section(picture, third, height),
        tenant_section(picture, third, height),
        third,
        2 * third + 1,
        " ",
    )
    rest = width - 2 * third - 2
    return beside(two, traffic_section(picture, rest, height), 2 * third + 1, width, " ")


def _use_lines(picture: Picture, width: int) -> list[Section]:
    """The same in a line each."""
    tenants = bool(by_use(picture))
    return [
        Section(Want("waiting", 1, 1, 2), lambda given: [waiting_line(picture, width)]),
        Section(Want("tenants", int(tenants), int(tenants), 5), lambda given: [tenant_line(picture, width)]),
    ]


def _was(picture: Picture, look: Look, size: Size, now: float) -> list[Section]:
    """What was and what goes on: history, operations, events."""
    width, height = size
    roomy = height >= ROOMY
    titles = 1 if roomy else 0
    operations = len(shown_operations(picture, now))
    few = len(picture.replicas) <= 4
    curves = len(CURVES) if height >= 44 or (roomy and few) else 3 if roomy else 2
    history = curves + titles + (1 if roomy else 0)
    return [
        Section(
            Want("history", 2 + titles if height >= 18 else 0, history if height >= 18 else 0, 7),
            lambda given: history_section(picture, width, given, titled=roomy, until=until(look.scrub)),
        ),
        Section(
            Want(
                "operations",
                min(operations, 1) + titles if operations else 0,
                min(operations, 4 if roomy else 2) + titles if operations else 0,
                3,
            ),
            lambda given: operation_section(picture, width, given, now, titled=roomy),
        ),
        Section(
            Want("events", 2 + titles if height >= 18 else 0, height, 9),
            lambda given: event_rows(picture, look, "fleet", width, given, titled=roomy),
        ),
    ]


def _calm(picture: Picture, width: int) -> Row:
    """No alarm is said in words: an empty line could also mean that nobody looks."""
    line = Line(width).put(" no alarm", "ok")
    if picture.link.message:
        line.put("   ").put(safe(picture.link.message), "dim")
    return line.row()
