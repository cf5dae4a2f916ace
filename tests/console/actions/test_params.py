"""What operators type becomes values, or an error that says which field, what was given and what is
allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from infer_console.actions.params import Amount, Param, ParamError, Value, parse_duration
from infer_engine.durations import show_duration

DEADLINE = Param(
    name="deadline", kind="duration", label="deadline", default="5m", highest=3600.0, optional=True
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("30s", 30),
        ("1.5s", 1.5),
        ("5m", 300),
        ("1h", 3600),
        ("1h30m", 5400),
        ("1h1m1s", 3661),
        ("0", 0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", " ", "soon", "-5s", "5 m", "5d", "m", "1m1h", "٣s", "1e3", "nan", "inf"]
)
def test_what_is_no_duration(text: str) -> None:
    assert parse_duration(text) is None


@given(st.integers(0, 200_000))
def test_a_duration_that_is_shown_reads_back(seconds: int) -> None:
    assert parse_duration(show_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("given_text", "value"),
    [(None, 300.0), ("", 300.0), ("10s", 10.0), ("none", None), (" 1h ", 3600.0)],
)
def test_a_deadline(given_text: str | None, value: float | None) -> None:
    assert DEADLINE.parse(given_text) == value


AMOUNT = Param(name="headroom", kind="amount", label="headroom")
RATE = Param(name="rate", kind="number", label="rate", default="1", lowest=0.01, highest=50.0)
MODE = Param(name="mode", kind="choice", label="mode", default="wait", choices=("wait", "cancel"))
TEXT = Param(name="reason", kind="text", label="reason", highest=8, optional=True)
FORCE = Param(name="force", kind="flag", label="force", default=False)


@pytest.mark.parametrize(
    ("param", "text", "value"),
    [
        (AMOUNT, "10%", Amount(percent=10.0)),
        (AMOUNT, "12.5", Amount(percent=12.5)),
        (AMOUNT, "0%", Amount(percent=0.0)),
        (AMOUNT, "50b", Amount(blocks=50)),
        (RATE, None, 1.0),
        (RATE, "0.5", 0.5),
        (MODE, None, "wait"),
        (MODE, "cancel", "cancel"),
        (TEXT, None, ""),
        (TEXT, "why", "why"),
        (FORCE, None, False),
        (FORCE, True, True),
    ],
)
def test_values(param: Param, text: str | bool | None, value: Value) -> None:
    assert param.parse(text) == value


@pytest.mark.parametrize(
    ("param", "text", "says"),
    [
        (
            DEADLINE,
            "2h",
            "deadline: '2h' was given, allowed is a duration like 30s, 5m or 1h, from 0s to 1h, or none",
        ),
        (DEADLINE, "soon", "deadline: 'soon'"),
        (AMOUNT, None, "headroom: nothing was given, allowed is a percentage of the pool like 10%"),
        (AMOUNT, "101%", "headroom: '101%' was given, allowed is 0% to 100%"),
        (AMOUNT, "-1%", "headroom: '-1%'"),
        (AMOUNT, "1.5b", "allowed is a whole number of blocks"),
        (AMOUNT, "ten", "headroom: 'ten'"),
        (RATE, "51", "rate: '51' was given, allowed is a number from 0.01 to 50"),
        (RATE, "0", "rate: '0'"),
        (RATE, "nan", "rate: 'nan'"),
        (RATE, "lots", "rate: 'lots'"),
        (MODE, "migrate", "mode: 'migrate' was given, allowed is wait or cancel"),
        (TEXT, "far too long", "at most 8 printable characters"),
        (TEXT, "a\x1b[m", "printable"),
    ],
)
def test_what_does_not_fit_is_named(param: Param, text: str | None, says: str) -> None:
    with pytest.raises(ParamError) as caught:
        param.parse(text)
    assert says in str(caught.value)
    assert caught.value.name == param.name
