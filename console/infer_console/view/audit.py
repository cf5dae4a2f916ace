"""The audit as rows, the newest first: who did or tried what, and how it ended."""

from infer_console.state.audit import AuditEntry, AuditPicture
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.filter import compiled
from infer_console.view.format import clock_in_lists
from infer_console.view.look import Look
from infer_console.view.row import Line, Role, Row, with_tone

#: From this width on the reason has a column; from the second on a whole outcome has one before it.
WIDE, WIDER = 100, 120


def shown_entries(picture: Picture, look: Look) -> list[AuditEntry]:
    wanted = compiled(look.filter)
    entries = picture.audit.entries if picture.audit is not None else ()
    return [entry for entry in entries if wanted.shows(entry.who, entry.verb, entry.target, entry.outcome)]


def chain_words(audit: AuditPicture | None) -> SafeText:
    """Whether what is shown is as it was written."""
    if audit is None or not audit.entries:
        return safe("")
    if audit.broken is not None:
        return safe(f"chain BROKEN {audit.broken}", 80)
    if audit.redacted:
        return safe("redacted: its chain cannot be checked")
    return safe(f"chain intact from {audit.entries[-1].number} to {audit.entries[0].number}")


def audit_row(entry: AuditEntry, width: int, focused: bool) -> Row:
    line = Line(width).put("▸" if focused else " ", "accent")
    line.put(clock_in_lists(entry.at), "dim").put(" ")
    line.put(safe(safe_identifier(entry.who or "–"), 12), "strong").to(23).put(" ")
    line.put(safe(entry.verb, 14), "dim" if is_refused(entry) else "act").to(38).put(" ")
    line.put(safe(entry.target, 14)).to(53).put(" ")
    reason_at = 92 if width >= WIDER else 80
    outcome, role = _outcome(entry, reason_at - 53)
    line.put(outcome, role)
    if width >= WIDE:
        line.to(reason_at).put(" ").put(safe(entry.reason, max(0, line.left)), "dim")
    return with_tone(line.row(), "cursor") if focused else line.row()


def is_refused(entry: AuditEntry) -> bool:
    """It ended without being done."""
    return entry.stage == "completed" and entry.outcome[:1] in ("4", "5")


def _outcome(entry: AuditEntry, cells: int) -> tuple[SafeText, Role]:
    stage = "refused" if is_refused(entry) else entry.stage
    # Servers of before wrote refused dry runs down, too.
    words = " ".join(each for each in (stage, entry.outcome, "dry run" if entry.dry_run else "") if each)
    return safe(words or "–", cells), "warn" if entry.outcome[:1] in ("4", "5") else "text"
