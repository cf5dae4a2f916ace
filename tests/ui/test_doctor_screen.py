"""Screen 8 driven by keys: plans of what findings propose, and moments of the audit."""

from infer_console.state.finding import Proposal
from infer_console.state.picture import Picture
from infer_console.ui.screens.action import ActionScreen
from infer_engine.protocol import ChangeLimits, ChangeTenant, SetHeadroom
from msgspec.structs import replace
from support.doctor_pictures import FINDINGS, doctored
from support.pictures import CAPABILITIES, NOW
from support.pilot import Driven, drive


def able(**changes: object) -> Picture:
    return doctored(capabilities=CAPABILITIES | {"tenants", "headroom", "limits"}, **changes)


async def opened(driven: Driven) -> ActionScreen:
    await driven.wait("the dialog", lambda: isinstance(driven.app.screen, ActionScreen))
    screen = driven.app.screen
    assert isinstance(screen, ActionScreen)
    return screen


async def test_enter_on_a_finding_opens_the_plan_of_what_it_proposes() -> None:
    async with drive(able()) as driven:
        await driven.press("8", "j", "j", "enter")
        screen = await opened(driven)
        assert (screen.form.action.name, screen.form.target) == ("headroom", "r5")
        await driven.wait("the server's prediction", lambda: driven.collector.commands)
        command, target = driven.collector.commands[0]
        assert isinstance(command, SetHeadroom)
        assert (command.blocks, command.dry_run, target) == (3_052, True, "r5")


async def test_what_has_no_proposal_says_so() -> None:
    async with drive(able()) as driven:
        await driven.press("8", "enter")
        await driven.wait_for("nothing is proposed for it")


async def test_a_proposed_budget_opens_the_plan_of_the_limits() -> None:
    budget = Proposal(
        name="limits", target="r2", params={"token_budget": "256"}, words="r2: 512→256", effect="less"
    )
    finding = replace(FINDINGS[2], action=budget)
    async with drive(able(findings=(finding,))) as driven:
        await driven.press("8", "enter")
        screen = await opened(driven)
        assert (screen.form.action.name, screen.form.target) == ("limits", "r2")
        await driven.wait("the server's prediction", lambda: driven.collector.commands)
        command, _ = driven.collector.commands[0]
        assert isinstance(command, ChangeLimits)
        assert (command.limits, command.replica, command.dry_run) == ({"token_budget": 256}, "r2", True)


async def test_a_proposal_without_a_dialog_is_told_as_a_command() -> None:
    unknown = Proposal(name="rebalance", target="r2", words="r2: to r3", effect="less")
    finding = replace(FINDINGS[2], action=unknown)
    async with drive(able(findings=(finding,))) as driven:
        await driven.press("8", "enter")
        await driven.wait_for("infer-console rebalance r2")


async def test_t_on_the_fleet_plans_the_proposed_limit() -> None:
    async with drive(able()) as driven:
        await driven.press("T")
        screen = await opened(driven)
        assert (screen.form.action.name, screen.form.target) == ("tenant", "acme")
        await driven.wait("the server's prediction", lambda: driven.collector.commands)
        command, _ = driven.collector.commands[0]
        assert isinstance(command, ChangeTenant)
        assert command.limits == {"kv_share": 0.34}


async def test_the_audit_is_asked_for_while_it_is_looked_at() -> None:
    async with drive(able()) as driven:
        assert not driven.collector.audit_wanted
        await driven.press("8")
        await driven.wait("asking", lambda: driven.collector.audit_wanted)
        await driven.press("1")
        await driven.wait("no more asking", lambda: not driven.collector.audit_wanted)


async def test_enter_on_a_record_goes_to_its_moment() -> None:
    async with drive(able()) as driven:
        moments: list[float] = []
        driven.app.looking_back.jump_to = moments.append  # pyright: ignore[reportAttributeAccessIssue]
        await driven.press("8", "tab", "j", "enter")
        await driven.settle()
        assert moments == [NOW - 40.0]
