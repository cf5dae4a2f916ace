"""Who is attached, as the server counts and tells it."""

from infer_engine.control.presence import MOST_NAMED, Presence
from infer_engine.control.principal import Principal


def somebody(subject: str = "uid:7") -> Principal:
    return Principal(subject=subject, role="operator", auth_method="unix_peer")


def test_those_who_come_are_named_until_they_leave() -> None:
    presence = Presence()
    kim = presence.enter(somebody(), "kim", 5.0)
    presence.enter(somebody("raj"), "", 6.0)
    assert [(each.who, each.role, each.since_at) for each in presence.named()] == [
        ("uid:7 (kim)", "operator", 5.0),
        ("raj", "operator", 6.0),
    ]
    presence.leave(kim)
    presence.leave(kim)
    assert [each.who for each in presence.named()] == ["raj"]


def test_what_somebody_claims_is_bounded_and_printable() -> None:
    presence = Presence()
    presence.enter(somebody(), "k\x1b[31m" + "x" * 500, 0.0)
    (shown,) = presence.named()
    assert "\x1b" not in shown.who
    assert len(shown.who) < 90


def test_a_crowd_is_counted() -> None:
    presence = Presence()
    for number in range(MOST_NAMED + 3):
        presence.enter(somebody(f"u{number}"), "", 0.0)
    assert len(presence.named()) == MOST_NAMED
    assert presence.more() == 3
