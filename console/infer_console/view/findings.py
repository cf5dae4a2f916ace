"""Findings as rows, and one of them with all its evidence."""

from collections.abc import Sequence
from typing import LiteralString

from infer_console.state.finding import Finding
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.evidence import evidence_words
from infer_console.view.filter import compiled
from infer_console.view.format import age, percent
from infer_console.view.look import Look
from infer_console.view.row import Line, Role, Row, with_tone

GRAVE = ("gpu_fault", "replica_stalled", "replica_unreachable")
SURE = 0.8


def shown_findings(picture: Picture, look: Look) -> list[Finding]:
    """Causes first, as the doctor has them; those that the filter leaves."""
    wanted = compiled(look.filter)
    return [
        finding
        for finding in picture.findings
        if wanted.shows(finding.rule.replace("_", " "), finding.replica or "fleet", finding.words)
    ]


def finding_row(finding: Finding, width: int, focused: bool) -> Row:
    """Sign, rule, where, since when, how sure, words."""
    grave = finding.rule in GRAVE
    line = Line(width).put("▸" if focused else " ", "accent")
    line.put("▲" if grave else "△", "crit" if grave else "warn").put(" ")
    line.put(safe(finding.rule.replace("_", " "), 21), "strong").to(24).put(" ")
    line.put(_where(finding)).to(34).put(" ")
    if finding.since_s is not None:
        line.put(age(finding.since_s), "dim")
    line.to(41).put(" ").put(
        safe(f"{percent(finding.confidence)}%"), "text" if finding.confidence >= SURE else "dim"
    )
    line.to(46).put(" ").put(safe(finding.words, max(0, line.left)))
    return with_tone(line.row(), "cursor") if focused else line.row()


def _where(finding: Finding) -> SafeText:
    if finding.replica is None:
        return safe("fleet")
    more = f"+{len(finding.replicas)}" if finding.replicas else ""
    return safe(f"{safe(safe_identifier(finding.replica), 6)}{more}")


def detail_rows(finding: Finding, width: int) -> list[Row]:
    """Its words whole, the evidence a number after the other, and what is proposed."""
    rows = _wrapped("  ", finding.words.split(" "), " ", width, "strong")
    rows += _wrapped("  evidence  ", evidence_words(finding), ", ", width, "text")
    if finding.replicas:
        rows += _wrapped("  also on   ", finding.replicas, ", ", width, "text")
    if finding.explains:
        accounts = [rule.replace("_", " ") for rule in finding.explains]
        rows += _wrapped("  it causes ", accounts, ", ", width, "dim")
    action = finding.action
    if action is None:
        return [
            *rows,
            Line(width).put("  proposed  ", "label").put("nothing that this console can do", "dim").row(),
        ]
    rows += _wrapped(
        "  proposed  ", f"{action.words} → {action.effect} (est.)".split(" "), " ", width, "accent"
    )
    return [*rows, Line(width).put("            ").put(safe(action.command, max(0, width - 13)), "dim").row()]


def _wrapped(
    label: LiteralString, pieces: Sequence[str], between: LiteralString, width: int, role: Role
) -> list[Row]:
    """The pieces after the label, in as many rows as they take; later rows begin below the first piece."""
    rows: list[Row] = []
    line = Line(width).put(label, "label")
    begun = False
    for number, piece in enumerate(pieces):
        text = safe(piece, max(1, width - len(label) - 1))
        end = between if number + 1 < len(pieces) else ""
        if begun and line.left < len(text) + len(end.rstrip()):
            rows.append(line.row())
            line = Line(width).to(len(label))
        line.put(text, role).put(end, role)
        begun = True
    return [*rows, line.row()]
