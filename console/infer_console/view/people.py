"""Whose console this is, and who else is attached."""

import re

from infer_engine.protocol import Attached, Fleet

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import clock_in_lists
from infer_console.view.row import Role

#: Named so many; the rest is counted.
MOST_NAMES = 3
WIDE = 120
#: Columns from which several are named.
NAMES_FROM = 100
#: How a subject begins that is a process's account, not a name in the file of tokens.
ACCOUNT = "uid:"
_CLAIMED = re.compile(r"(.*) \((.*)\)", re.DOTALL)


def me(picture: Picture) -> SafeText | None:
    """``you: operator``; None where the server does not say what this console may do."""
    return None if picture.role is None else safe(f"you: {picture.role}", 24)


def others(picture: Picture) -> list[Attached]:
    """Everybody but this console, which the server counts too; two of one account by what they call
    themselves, since after a reconnect ours is not the first any more."""
    attached = list(picture.fleet.attached) if picture.fleet is not None else []
    ours = [each for each in attached if _subject(each) == picture.subject]
    named = [each for each in ours if each.who == f"{picture.subject} ({picture.claim})"]
    mine = next(iter(named or ours), None)
    return [each for each in attached if each is not mine]


def also(picture: Picture, width: int = WIDE) -> tuple[SafeText, Role] | None:
    """``also: kim rw, raj ro``, where it is narrow ``+kim rw``; None where nobody else is there."""
    found = others(picture)
    if not found or picture.subject is None:
        return None
    names = [f"{_name(each)} {'rw' if each.role in ('operator', 'admin') else 'ro'}" for each in found]
    counted: dict[str, int] = {}
    for name in names:
        counted[name] = counted.get(name, 0) + 1
    shown = [f"{name}×{number}" if number > 1 else name for name, number in counted.items()]
    most = MOST_NAMES if width >= NAMES_FROM else 1
    rest = len(shown) - most + (picture.fleet.attached_more if picture.fleet is not None else 0)
    words = ", ".join(shown[:most]) + (f" +{rest}" if rest > 0 else "")
    return safe(f"also: {words}" if width >= NAMES_FROM else f"+{words}", 80), "text"


def lease(fleet: Fleet, width: int) -> tuple[SafeText, Role] | None:
    """``lease: uid:1000 (upgrade) until 10:45:12``; on a narrow screen only who. None while nobody holds
    it."""
    if fleet.lease is None:
        return None
    if width < WIDE:
        return safe(f"lease: {fleet.lease.holder[:16]}"), "warn"
    purpose = f" ({fleet.lease.purpose[:24]})" if fleet.lease.purpose else ""
    until = clock_in_lists(fleet.lease.expires_at)
    return safe(f"lease: {fleet.lease.holder[:16]}{purpose} until {until}", 64), "warn"


def _subject(each: Attached) -> str:
    found = _CLAIMED.fullmatch(each.who)
    return found[1] if found is not None else each.who


def _name(each: Attached) -> str:
    """The name that the server's side gave to who shows a token or a certificate: several people may have
    come by one account, and it is what the audit says. Of an account on the server's machine, what its user
    claims to be, which is what people know them by."""
    found = _CLAIMED.fullmatch(each.who)
    if found is None or not found[1].startswith(ACCOUNT):
        return (found[1] if found is not None else each.who)[:16]
    return found[2][:16]
