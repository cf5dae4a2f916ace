"""The newest records of the server's audit as an operator reads them, and whether their chain holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infer_engine.audit_chain import Chain, ChainError
from infer_engine.protocol import AuditPage


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One record. All text is what somebody sent or what the server made of it: untrusted."""

    number: int
    at: float | None
    who: str
    #: received, completed, panic: how far it got.
    stage: str
    verb: str
    target: str
    #: HTTP status and code; empty where it has none yet.
    outcome: str
    reason: str
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class AuditPicture:
    """``entries`` newest first. ``broken`` says where the chain does not hold, as far as these records go;
    None where it does. ``trouble`` is why there are none, or why none can be written."""

    entries: tuple[AuditEntry, ...] = ()
    broken: str | None = None
    trouble: str = ""
    #: These are parts of records, without their hashes: whether the chain holds cannot be told.
    redacted: bool = False


#: JSON knows integers that no float holds.
MOST_NUMBER = 2**53


def read_audit(page: AuditPage) -> AuditPicture:
    """Records that cannot be read are left out; the chain then says so."""
    chain, broken = Chain(), None
    redacted = bool(page.records) and not any("sha256" in record for record in page.records)
    entries: list[AuditEntry] = []
    for record in page.records:
        if broken is None and not redacted:
            try:
                chain.follow(record)
            except ChainError as error:
                broken = str(error)
        entry = _entry(record)
        if entry is not None:
            entries.append(entry)
    entries.reverse()
    return AuditPicture(tuple(entries), broken, page.trouble or "", redacted)


def _entry(record: Mapping[str, Any]) -> AuditEntry | None:
    number, at = record.get("number"), record.get("ts")
    if not isinstance(number, int) or not 0 <= number <= MOST_NUMBER:
        return None
    actor, target, outcome = (_part(record, name) for name in ("actor", "target", "outcome"))
    status, code = outcome.get("status"), outcome.get("code")
    return AuditEntry(
        number=number,
        at=float(at) if isinstance(at, int | float) and abs(at) <= MOST_NUMBER else None,
        who=_text(actor.get("subject")) or _text(actor.get("claims")),
        stage=_text(record.get("stage")),
        verb=_text(record.get("verb")),
        target=_text(target.get("id")),
        outcome=" ".join(str(each) for each in (status, code) if each is not None),
        reason=_text(record.get("reason")),
        dry_run=record.get("dry_run") is True,
    )


def _part(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = record.get(name)
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str:
    return value[:256] if isinstance(value, str) else ""
