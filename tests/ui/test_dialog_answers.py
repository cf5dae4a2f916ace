"""What the server says while a dialog is open: refusals, conflicts, nothing; and who may not act at all."""

import dataclasses

import pytest
from infer_console.state.picture import Link
from infer_console.ui.screens.action import ActionScreen
from infer_engine.protocol import (
    Command,
    CommandResult,
    Effect,
    Operation,
    Problem,
)
from msgspec.structs import replace
from support import pictures
from support.dialogs import look_at_r2, open_on
from support.pilot import drive


async def test_a_refusal_is_shown_and_loses_nothing() -> None:
    def refuse(command: Command, target: str | None) -> CommandResult | Problem:
        if command.dry_run:
            return CommandResult(
                operation=None, effect=Effect(summary=["fine"], warnings=["r2 is the last of its kind"])
            )
        return Problem(status=409, code="last_ready", title="The last ready replica.", numbers={"ready": 1.0})

    async with drive(pictures.incident()) as driven:
        driven.collector.answer = refuse
        await driven.press("j")
        await open_on(driven, "D", "Drain r2")
        assert "△ r2 is the last of its kind" in driven.text
        await driven.press("D")
        await driven.wait_for("▲ The last ready replica.")
        assert "ready 1" in driven.text
        assert "Drain r2" in driven.text


@pytest.mark.parametrize(
    ("status", "words"), [(409, "the server would refuse"), (503, "from what is on the screen")]
)
async def test_a_prediction_may_fail(status: int, words: str) -> None:
    async with drive(pictures.incident()) as driven:
        driven.collector.answer = lambda command, target: Problem(status=status, code="no", title="No.")
        await driven.press("j", "D")
        await driven.wait_for(words)
        await driven.wait_for("No.")


async def test_a_stale_view_allows_what_reduces_risk_only() -> None:
    stale = pictures.incident(link=Link("unix:///x", "stale", age_s=9.0))
    async with drive(stale) as driven:
        assert "STALE 9.0s" in driven.text
        await driven.press("H")
        await driven.wait_for("the view is 9 s old")
        await driven.press("j")
        await driven.press("D")
        await driven.wait_for("what is shown may have changed")


async def test_a_refusal_does_not_outlast_a_prediction_that_succeeds() -> None:
    def refuse(command: Command, target: str | None) -> CommandResult | Problem:
        if command.dry_run:
            return CommandResult(operation=None, effect=Effect(summary=["fine again"]))
        return Problem(status=409, code="last_ready", title="The last ready replica.")

    async with drive(pictures.incident()) as driven:
        driven.collector.answer = refuse
        await driven.press("j")
        await open_on(driven, "D", "Drain r2")
        await driven.press("D")
        await driven.wait_for("▲ The last ready replica.")
        screen = driven.screen
        assert isinstance(screen, ActionScreen)
        screen.ask()
        await driven.wait("the refusal gone", lambda: "The last ready replica" not in driven.text)
        assert "fine again" in driven.text


async def test_a_refusal_goes_with_the_state_it_was_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for the next time that the server is asked."""
    monkeypatch.setattr("infer_console.ui.screens.action.ASK_AGAIN_S", 3_600.0)

    def refuse(command: Command, target: str | None) -> CommandResult | Problem:
        return Problem(status=409, code="injection_running", title="Test traffic is running already.")

    async with drive(pictures.quiet()) as driven:
        taken = driven.collector.answer
        await open_on(driven, "I", "Inject test traffic")
        driven.collector.answer = refuse
        await driven.show(pictures.small())
        await driven.wait_for("the server would refuse:")
        await driven.press("I")
        await driven.wait_for("traffic is running already; stop it first")
        driven.collector.answer = taken
        await driven.show(pictures.quiet())
        await driven.wait("the refusal gone", lambda: "running already" not in driven.text)
        await driven.wait_for("the server's prediction")


async def test_the_server_is_not_asked_about_limits_before_one_is_given() -> None:
    async with drive(pictures.incident()) as driven:
        await look_at_r2(driven)
        await driven.press("T")
        await driven.wait_for("nothing to predict:")
        assert "nothing is limited yet: fill in a field" in driven.text
        await driven.press("T")
        assert driven.collector.commands == []
        await driven.press("1")
        await driven.wait_for("the server's prediction")


@pytest.mark.parametrize("actor", ["", "uid:7 (kim)"])
async def test_after_a_conflict_the_prediction_is_asked_for_again_and_who_was_faster_is_said(
    actor: str,
) -> None:
    refused: list[Command] = []

    def conflict(command: Command, target: str | None) -> CommandResult | Problem:
        if command.dry_run:
            words = "as it is now" if refused else "as it was"
            return CommandResult(
                operation=None, effect=Effect(summary=[words]), resource_version="v2" if refused else "v1"
            )
        refused.append(command)
        return Problem(
            status=412,
            code="stale_version",
            title="Somebody changed it since.",
            detail="If-Match was 'v1', the version is now 'v2'.",
            field="if-match",
            current={"id": "r2"},
        )

    picture = pictures.incident()
    theirs = Operation(
        id="op-9", kind="undrain", target="r2", phase="succeeded", actor=actor, started_at=picture.at + 1e9
    )
    async with drive(dataclasses.replace(picture, operations=(theirs,))) as driven:
        driven.collector.answer = conflict
        await driven.press("j", "D")
        await driven.wait_for("as it was")
        await driven.press("D")
        await driven.wait_for("as it is now")
        assert f"not applied: {actor or 'somebody'} changed it since" in driven.text
        assert "match" not in driven.text.lower()
        assert "Drain r2" in driven.text
        assert "as it was" not in driven.text


async def test_a_change_under_the_dialog_is_noted() -> None:
    versions = ["v1"]

    def answer(command: Command, target: str | None) -> CommandResult | Problem:
        return CommandResult(operation=None, effect=Effect(summary=["fine"]), resource_version=versions[-1])

    async with drive(pictures.incident()) as driven:
        driven.collector.answer = answer
        await driven.press("j", "D")
        await driven.wait_for("the server's prediction")
        await driven.press("up", "down", "down", "down", "right")
        await driven.wait_for("the server's prediction")
        assert "changed since you opened this" not in driven.text
        versions.append("v2")
        await driven.press("right")
        await driven.wait_for("changed since you opened this")


async def test_read_only_sends_nothing() -> None:
    async with drive(pictures.incident(read_only=True)) as driven:
        await driven.press("D")
        await driven.wait_for("this console is read-only")
        assert driven.collector.commands == []


async def test_what_only_watches_says_why_no_key_acts() -> None:
    watched = pictures.incident(read_only=True, capabilities=frozenset({"watch", "watched"}))
    async with drive(watched) as driven:
        await driven.press("D")
        await driven.wait_for("drain is off: this server can only be watched")
        await driven.press("question_mark")
        await driven.wait_for("capitals are off: this server can only be watched")
        await driven.press("q", "3", "H")  # which is no key of that screen
        await driven.wait_for("H is off: this server can only be watched")
        assert driven.collector.commands == []


async def test_a_refusal_is_said_once_and_in_the_dialogs_words() -> None:
    problem = Problem(
        status=409,
        code="would_break_min_ready",
        title="it is the last ready replica",
        detail="draining r2 would leave 0 ready replicas, at least 1 must stay; --force overrides this",
        numbers={"ready": 1.0, "ready_after": 0.0, "min_ready": 1.0},
    )
    async with drive(pictures.incident()) as driven:
        driven.collector.answer = lambda command, target: problem
        await driven.press("j", "D")
        await driven.wait_for("the server would refuse:")
        await driven.press("D")
        await driven.wait_for("▲ it is the last ready replica")
        assert driven.text.count("it is the last ready replica") == 1
        assert "at least 1 must stay; tick force" in driven.text
        for inner in ("min_ready", "ready_after", "--force"):
            assert inner not in driven.text


async def test_a_refusal_is_asked_about_again_when_replicas_become_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("infer_console.ui.screens.action.ASK_AGAIN_S", 3_600.0)
    problem = Problem(
        status=409,
        code="no_ready_replica",
        title="No replica is ready to take requests.",
        numbers={"ready": 0.0},
    )
    quiet = pictures.quiet()
    assert quiet.totals is not None
    none = dataclasses.replace(quiet, totals=replace(quiet.totals, ready=0))
    async with drive(none) as driven:
        taken = driven.collector.answer
        driven.collector.answer = lambda command, target: problem
        await driven.press("I")
        await driven.wait_for("the server would refuse:")
        await driven.press("shift+tab", "shift+tab", "I")
        await driven.wait_for("▲ No replica is ready")
        assert driven.text.count("No replica is ready") == 1
        assert "ready 0" not in driven.text
        driven.collector.answer = taken
        await driven.show(dataclasses.replace(quiet, totals=replace(quiet.totals, ready=1)))
        await driven.wait_for("the server's prediction")
        assert "No replica is ready" not in driven.text
