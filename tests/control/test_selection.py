"""Conditions on requests: what they select, and what is said of those that do not fit."""

import pytest
from infer_engine.control.selection import MAX_CHARS, SelectionError, parse_selection
from infer_engine.protocol import RequestRow

ROW = RequestRow(
    id="a1",
    tenant="acme",
    tier="batch",
    replica=None,
    state="waiting",
    prompt_tokens=100,
    generated_tokens=3,
    age_s=61.5,
    synthetic=True,
)


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("tenant=acme", True),
        (" tenant = acme  and age_s>60 ", True),
        ("tenant=acme and age_s>62", False),
        ("replica=none", True),
        ("replica!=r0", True),
        ("synthetic=true", True),
        ("synthetic!=true", False),
        ("ttft_s<5", False),
        ("ttft_s=none", True),
        ("prompt_tokens>=100 and prompt_tokens<=100", True),
        ("state=running", False),
        ("id=a1", True),
    ],
)
def test_selects(text: str, selected: bool) -> None:
    assert parse_selection(text).selects(ROW) is selected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("tenant", "no condition"),
        ("tenant=acme or tier=batch", "no condition"),
        ("tenant=acme and", "no condition"),
        ("prompt=secret", "no field prompt"),
        ("tenant>acme", "compared with = or !="),
        ("age_s>soon", "compared with a number"),
        ("age_s>nan", "compared with a number"),
        ("age_s<none", "compared with a number"),
        ("synthetic=yes", "true or false"),
        ("state=finished", "waiting and running"),
        ("tenant=a and " * 10 + "tenant=a", "at most 10"),
        ("x" * (MAX_CHARS + 1), "characters"),
    ],
)
def test_says_what_does_not_fit(text: str, says: str) -> None:
    with pytest.raises(SelectionError, match=says):
        parse_selection(text)
