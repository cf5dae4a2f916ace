import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from infer_console.actions.registry import ACTIONS
from infer_console.commands.complete import candidates, palette
from infer_console.commands.known import Known
from infer_console.commands.line import CommandLine
from infer_console.commands.parse import Asked, CommandError, parse
from infer_console.commands.table import BY_NAME, TABLE
from infer_console.view.look import PANES
from support import pictures

KNOWN = Known(
    picture=pictures.incident(),
    screen="fleet",
    themes=("dark", "light"),
    views=("night",),
    fleets=("eu-west", "us-east"),
    columns=("step", "hits"),
)


def wrong(line: str) -> str:
    with pytest.raises(CommandError) as error:
        parse(line, KNOWN)
    return str(error.value)


def acted(line: str) -> tuple[str, str | None, dict[str, str | bool | None]]:
    asked = parse(line, KNOWN)
    assert asked.action is not None
    return asked.action.name, asked.target, asked.given


def test_every_action_and_every_screen_has_a_command() -> None:
    assert {action.name for action in ACTIONS} <= set(BY_NAME)
    assert set(PANES) <= set(BY_NAME)
    assert len(TABLE) == len(BY_NAME)
    assert all(entry.help for entry in TABLE)


@pytest.mark.parametrize(
    ("line", "action", "target", "given"),
    [
        ("drain r2 mode=wait", "drain", "r2", {"mode": "wait"}),
        ("drain r2 mode=", "drain", "r2", {"mode": None}),
        ("drain r2 force", "drain", "r2", {"force": True}),
        ("drain r2 force=no", "drain", "r2", {"force": False}),
        ("scale 7", "scale", None, {"replicas": "7"}),
        ("tenant acme kv_share=25", "tenant", "acme", {"kv_share": "25"}),
        ("headroom r2 20%", "headroom", "r2", {"headroom": "20%"}),
        ("headroom 20%", "headroom", None, {"headroom": "20%"}),
        ("shed on", "shed", None, {}),
        ("shed off", "shed-off", None, {}),
        ("inject stop", "inject-stop", None, {}),
        (
            "cancel where tenant=acme and age_s>60",
            "cancel-where",
            None,
            {"where": "tenant=acme and age_s>60"},
        ),
        ("restart r1 reason=it hangs = badly", "restart", "r1", {"reason": "it hangs = badly"}),
        ("  drain   r2 ", "drain", "r2", {}),
        ("drain", "drain", None, {}),
    ],
)
def test_an_action_is_its_dialog_filled(
    line: str, action: str, target: str | None, given: dict[str, object]
) -> None:
    assert acted(line) == (action, target, given)


def test_a_request_by_the_beginning_of_its_id() -> None:
    listed = next(id for id in KNOWN.requests)
    assert acted(f"cancel {listed}")[1] == listed


@pytest.mark.parametrize(
    ("line", "entry", "values"),
    [
        ("fleet", "fleet", {}),
        ("fleet us-east", "fleet", {"name": "us-east"}),
        ("replica r2", "replica", {"replica": "r2"}),
        ("filter !r[12] x", "filter", {"expression": "!r[12] x"}),
        ("filter", "filter", {}),
        ("sort kv", "sort", {"column": "kv"}),
        ("theme light", "theme", {"theme": "light"}),
        ("export -10m..now a.icr", "export", {"span": "-10m..now", "file": "a.icr"}),
        ("diff r1 r2", "diff", {"a": "r1", "b": "r2"}),
        ("diff now -15m", "diff", {"a": "now", "b": "-15m"}),
        ("at 03:05:10", "at", {"moment": "03:05:10"}),
        ("q", "q", {}),
        ("quit", "q", {}),
        ("columns +hits -step", "columns", {"changes": "+hits -step"}),
    ],
)
def test_a_look(line: str, entry: str, values: dict[str, str]) -> None:
    asked = parse(line, KNOWN)
    assert (asked.entry.name, asked.values, asked.action) == (entry, values, None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("drian r2", ("command: 'drian' was given", "did you mean drain?")),
        ("drain r99", ("drain: replica: 'r99' was given", "r0", "allowed is")),
        ("drain r2 mode=wiat", ("mode: 'wiat' was given", "allowed is", "did you mean wait?")),
        ("drain r2 mod=wait", ("parameter: 'mod' was given", "did you mean mode?")),
        ("drain r2 force=perhaps", ("'perhaps' was given, allowed is yes or no",)),
        ("drain r2 wait 7", ("'7' is too much", "usage: drain [replica] [mode=]")),
        ("scale many", ("scale: replicas: 'many' was given", "a number from")),
        ("headroom r2 200%", ("'200%' was given, allowed is 0% to 100%",)),
        ("headroom r99 20%", ("replica: 'r99' was given",)),
        ("cancel where", ("the expression is missing",)),
        ("cancel nobody", ("request: 'nobody' was given",)),
        ("theme lihgt", ("theme: 'lihgt' was given", "did you mean light?")),
        ("sort", ("sort: column is missing; allowed is worst",)),
        ("diff r1", ("diff: b is missing",)),
        ("fleet mars", ("'mars' was given, allowed is eu-west, us-east",)),
        ("q now", ("'now' is too much",)),
        ("", ("command: ''",)),
        ("x" * 600, ("600 characters",)),
    ],
)
def test_what_is_wrong_is_said(line: str, words: tuple[str, ...]) -> None:
    said = wrong(line)
    for word in words:
        assert word in said
    assert len(said) < 400


@given(
    st.text(max_size=80)
    | st.lists(st.sampled_from([*BY_NAME, "r2", "mode=", "where", " ", "=", "20%"])).map(" ".join)
)
def test_any_line_is_taken_or_refused_in_words(line: str) -> None:
    with contextlib.suppress(CommandError):
        assert isinstance(parse(line, KNOWN), Asked)
    for word in candidates(line, KNOWN):
        assert word.startswith(line.split(" ")[-1])


def test_completion() -> None:
    assert candidates("dr", KNOWN) == ["drain"]
    assert "r2" in candidates("drain ", KNOWN)
    assert candidates("drain r2 mo", KNOWN) == ["mode="]
    assert "mode=wait" in candidates("drain r2 mode=", KNOWN)
    assert candidates("drain r2 mode=wait mo", KNOWN) == []
    assert candidates("drain r2 force=", KNOWN) == ["force=yes", "force=no"]
    assert candidates("cancel w", KNOWN) == ["where"]
    assert candidates("columns +hits -s", KNOWN) == ["-step"]
    assert candidates("theme l", KNOWN) == ["light"]
    assert "off" in candidates("shed ", KNOWN)
    assert candidates("nothing ", KNOWN) == []


def test_tab_goes_through_what_fits() -> None:
    line = CommandLine()
    line.set("dra")
    line.complete(KNOWN)
    assert line.text == "drain "
    line.type("r")
    line.complete(KNOWN)
    first = line.text
    line.complete(KNOWN)
    assert line.text != first
    line.complete(KNOWN, -1)
    assert line.text == first
    line.set("un")
    line.complete(KNOWN)
    assert line.text == "und"  # undo, undrain
    assert line.at == 3


def test_the_history_by_what_it_begins_with() -> None:
    line = CommandLine(["drain r1", "fleet", "drain r2"])
    line.set("dr")
    line.older()
    assert line.text == "drain r2"
    line.older()
    line.older()
    assert line.text == "drain r1"
    line.older(-1)
    line.older(-1)
    assert line.text == "dr"


def test_the_line_is_edited() -> None:
    line = CommandLine()
    for character in "drain r2":
        line.type(character)
    line.delete_word()
    assert (line.text, line.at) == ("drain ", 6)
    line.move(-100)
    line.delete()
    line.type("D")
    line.backspace()
    assert (line.text, line.at) == ("rain ", 0)
    line.error = "why"
    line.type("t")
    assert (line.text, line.error) == ("train ", "")


def test_the_palette_finds_what_is_alike() -> None:
    assert palette("drr2", KNOWN)[0].line == "drain r2"
    assert palette("theme dark", KNOWN)[0].line == "theme dark"
    assert palette("audit", KNOWN) == [] or "doctor" not in palette("audit", KNOWN)[0].line
    assert palette("zzzz", KNOWN) == []
    assert not next(each for each in palette("diff", KNOWN) if each.line == "diff").whole
    assert all(each.whole for each in palette("doctor", KNOWN)[:1])


def test_the_palette_begins_with_screens_and_ends_with_leaving() -> None:
    lines = [each.line for each in palette("", KNOWN)]
    assert lines[0] == "fleet"
    assert lines[-1] == "q"
    assert len(lines) == len(set(lines)) == len(TABLE)
    assert lines.index("doctor") < lines.index("filter") < lines.index("drain") < lines.index("undo")
