"""The Doctor and audit screen: what is wrong and why, and who did what."""

from infer_console.diagnosis.sight import nothing_found
from infer_console.state.finding import Finding
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.alarms import alarm_sign
from infer_console.view.audit import audit_row, chain_words, shown_entries
from infer_console.view.banner import banner
from infer_console.view.findings import detail_rows, finding_row, shown_findings
from infer_console.view.format import count
from infer_console.view.frame import bottom_row, start_rows, whole
from infer_console.view.history import history_section
from infer_console.view.layout import Want, allot, fill, rule, window
from infer_console.view.look import Look, Pane, Size
from infer_console.view.order import follow
from infer_console.view.row import Line, Row
from infer_console.view.scrubber import until
from infer_console.view.vital import fleet_vitals, vital_row
from infer_console.view.watched import fleet_needs, is_watched

#: Rows of the history: its title, the curves of what users feel and of memory, and the axis.
LEAST_HISTORY = 6


def doctor_screen(
    picture: Picture, look: Look, size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells."""
    width, height = size
    top = [banner(picture, look, width, now, safe("doctor"))]
    bottom = [bottom_row(picture, look, "doctor", width, now, notice)]
    if picture.totals is None:
        return whole(top, start_rows(picture, width, height - 2), bottom, width, height)
    top.append(vital_row(fleet_vitals(picture), width))
    findings = shown_findings(picture, look)
    chosen = follow(picture, look, "doctor", "findings").id
    detail = next((detail_rows(each, width) for each in findings if each.id == chosen), [])
    room = height - len(top) - 1
    audit = min(height, len(_audit_head(picture, look, width)) + len(shown_entries(picture, look)))
    given = allot(
        room,
        [
            Want("findings", 2, 1 + (len(findings) or len(_no_finding(picture, width))), 0),
            Want("detail", min(len(detail), 3), len(detail), 1),
            Want("audit", 2, audit, 2),
        ],
    )
    # Only what these leave: at 3 a.m. nobody scrolls for a record that a curve took the place of.
    left = room - sum(given.values())
    others = _others(findings, chosen, width, left)
    left -= len(others)
    if left < LEAST_HISTORY:
        given["audit"] += left
    body = _findings(picture, look, width, given["findings"])
    body += fill(detail, given["detail"], width)
    body += others
    body += _audit(picture, look, width, given["audit"])
    if left >= LEAST_HISTORY:
        body += history_section(picture, width, left, tall=True, until=until(look.scrub))
    return whole(top, body, bottom, width, height)


def _others(findings: list[Finding], chosen: str | None, width: int, height: int) -> list[Row]:
    """The evidence of those that are not chosen, as many as there is room for."""
    rows: list[Row] = [rule(width, "EVIDENCE OF THE OTHERS")]
    for each in findings:
        detail = detail_rows(each, width) if each.id != chosen else []
        if len(rows) + len(detail) <= height:
            rows += detail
    return rows if len(rows) > 1 else []


def _findings(picture: Picture, look: Look, width: int, height: int) -> list[Row]:
    if height <= 0:
        return []
    findings = shown_findings(picture, look)
    rows = [
        rule(
            width,
            "FINDINGS",
            count(len(findings)),
            "enter: plan what is proposed",
            _focused(look, "findings"),
        )
    ]
    if not findings:
        return fill([*rows, *_no_finding(picture, width)], height, width)
    cursor = follow(picture, look, "doctor", "findings")
    for index in window(len(findings), height - 1, cursor.index):
        rows.append(finding_row(findings[index], width, findings[index].id == cursor.id))
    return rows


def _no_finding(picture: Picture, width: int) -> list[Row]:
    """What is wrong all the same is told as the alarms tell it."""
    if picture.findings:
        return [Line(width).put(" ").put(safe("no finding matches the filter"), "ok").row()]
    if not picture.alarms:
        if is_watched(picture):  # that most rules say nothing is no good news there
            return [Line(width).put(" ").put(safe(nothing_found(picture)), "dim").row()]
        return [Line(width).put(" ").put(safe("nothing found: no rule sees a cause"), "ok").row()]
    rows = [Line(width).put(" ").put(safe("no rule sees a cause beyond what the alarms say:"), "dim").row()]
    for alarm in picture.alarms:
        where = f"{safe_identifier(alarm.replica)}: " if alarm.replica else ""
        action = f" → {alarm.action}" if alarm.action else ""
        sign, role = alarm_sign(alarm)
        line = Line(width).put(" ").put(sign, role).put(" ")
        rows.append(line.put(safe(f"{where}{alarm.text}{action}", max(0, line.left))).row())
    return rows


def _audit_head(picture: Picture, look: Look, width: int) -> list[Row]:
    """What stands before the records."""
    audit, entries = picture.audit, shown_entries(picture, look)
    told = audit is not None and (bool(audit.entries) or not audit.trouble)
    known = len(entries) if told else None
    rows = [rule(width, "AUDIT", count(known), chain_words(audit), _focused(look, "audit"))]
    if is_watched(picture):
        rows += fleet_needs("a server that is only watched has no audit", picture, width)
    elif audit is None:
        rows.append(Line(width).put(" asking for it", "dim").row())
    elif audit.broken is not None:
        rows.append(
            Line(width).put(" ▲ the chain is broken ", "crit").put(safe(audit.broken, 200), "crit").row()
        )
    if audit is not None and audit.trouble and not is_watched(picture):
        rows.append(Line(width).put(" ").put(safe(audit.trouble, 200), "warn").row())
    elif audit is not None and not audit.entries and not is_watched(picture):
        rows.append(Line(width).put(" nothing was done yet", "dim").row())
    return rows


def _audit(picture: Picture, look: Look, width: int, height: int) -> list[Row]:
    if height <= 0:
        return []
    rows, entries = _audit_head(picture, look, width), shown_entries(picture, look)
    cursor = follow(picture, look, "doctor", "audit")
    for index in window(len(entries), height - len(rows), cursor.index):
        entry = entries[index]
        rows.append(audit_row(entry, width, str(entry.number) == cursor.id))
    return fill(rows, height, width)


def _focused(look: Look, pane: Pane) -> bool:
    return look.pane("doctor") == pane
