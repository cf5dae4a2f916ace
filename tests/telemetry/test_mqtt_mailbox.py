"""What waits for a broker is bounded, keeps what is newest, and says what it dropped."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from infer_engine.telemetry.mqtt_address import BrokerAddress, parse_broker, topic_name
from infer_engine.telemetry.mqtt_mailbox import Letter, Mailbox


def event(number: int) -> Letter:
    return Letter("f/event/x", {"n": number}, qos=1)


def test_a_newer_value_takes_the_place_of_one_that_waits() -> None:
    mailbox = Mailbox()
    mailbox.latest(Letter("a", {"n": 1}))
    mailbox.latest(Letter("b", {"n": 2}))
    mailbox.latest(Letter("a", {"n": 3}))
    assert [mailbox.take(), mailbox.take(), mailbox.take()] == [
        Letter("a", {"n": 3}),
        Letter("b", {"n": 2}),
        None,
    ]


def test_the_oldest_events_go_and_the_next_one_says_how_many() -> None:
    mailbox = Mailbox(most_events=3)
    for number in range(8):
        mailbox.event(event(number))
    assert len(mailbox) == 3
    assert mailbox.take() == Letter("f/event/x", {"n": 5, "dropped": 5}, qos=1)
    assert mailbox.take() == event(6)
    assert mailbox.dropped == 5


@example(["event"] * 6 + ["fail", "event"])
@given(st.lists(st.sampled_from(["event", "take", "fail"]), max_size=200))
def test_every_event_is_sent_or_counted_once(steps: list[str]) -> None:
    mailbox, made, sent, told = Mailbox(most_events=5), 0, [], 0
    for step in [*steps, *["take"] * 10]:
        if step == "event":
            mailbox.event(event(made))
            made += 1
            continue
        letter = mailbox.take()
        if letter is None:
            continue
        if step == "fail":
            mailbox.put_back(letter, is_event=True)
            continue
        sent.append(letter.payload["n"])
        told += int(str(letter.payload.get("dropped", 0)))
        assert len(mailbox) <= 5
    assert sent == sorted(set(sent))
    assert len(sent) + mailbox.dropped == made
    # What was dropped after the last event that was sent is told by the next one.
    mailbox.event(event(made))
    last = mailbox.take()
    assert last is not None
    assert told + int(str(last.payload.get("dropped", 0))) == mailbox.dropped


def test_what_could_not_be_sent_does_not_replace_what_is_newer() -> None:
    mailbox = Mailbox()
    mailbox.latest(Letter("a", {"n": 1}))
    taken = mailbox.take()
    assert taken is not None
    mailbox.latest(Letter("a", {"n": 2}))
    mailbox.put_back(taken, is_event=False)
    assert mailbox.take() == Letter("a", {"n": 2})
    assert mailbox.take() is None


def test_broker_addresses() -> None:
    assert parse_broker("mqtt://host") == BrokerAddress("host", 1883, False, None)
    assert parse_broker("mqtts://me@host:99/") == BrokerAddress("host", 99, True, "me")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://host", "expected mqtt://"),
        ("mqtt://", "expected mqtt://"),
        ("mqtt://me:secret@host", "password"),
        ("mqtt://host/fleet", "nothing may follow"),
        ("mqtt://host:99999", "ort"),
    ],
)
def test_wrong_addresses_are_refused_and_no_secret_is_repeated(url: str, says: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_broker(url)
    assert says in str(error.value)
    assert "secret" not in str(error.value)


@given(st.text(max_size=80))
def test_no_name_reaches_beyond_its_level(name: str) -> None:
    level = topic_name(name)
    assert level
    assert len(level) <= 64
    assert set(level) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
