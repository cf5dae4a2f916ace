"""Every action: what it sends, what it says it will do, and when it may not."""

import dataclasses

import pytest
from infer_console.actions.action import Undo
from infer_console.actions.headroom import new_limit, present_headroom
from infer_console.actions.opening import given_now, switched
from infer_console.actions.params import Amount, Given, ParamError
from infer_console.actions.registry import ACTIONS, action
from infer_console.state.picture import Link, Picture, ReplicaPicture
from infer_engine.protocol import (
    Cancel,
    CancelWhere,
    ChangeLimits,
    ChangeTenant,
    Command,
    Drain,
    Fence,
    Fleet,
    FleetSpec,
    Inject,
    Kv,
    Preempt,
    Release,
    Replica,
    RequestRow,
    Restart,
    Scale,
    SetHeadroom,
    Shed,
    StopInjection,
    Totals,
    TrafficStatus,
    Undrain,
)


def row(request: str, **fields: object) -> RequestRow:
    base = {"tenant": "t", "tier": "interactive", "replica": "r0", "state": "running", "prompt_tokens": 9}
    more = {"age_s": 1.0, "kv_blocks": 5, "generated_tokens": 10, "max_tokens": 60}
    return RequestRow(**{"id": request, **base, **more, **fields})  # type: ignore[arg-type]


def replica(
    name: str, state: str = "ready", used: int = 40, rows: tuple[RequestRow, ...] = ()
) -> ReplicaPicture:
    running = sum(each.state == "running" for each in rows)
    status = Replica(
        id=name,
        state=state,  # type: ignore[arg-type]
        running=running,
        waiting=len(rows) - running,
        kv=Kv(block_size=16, total=100, used=used, admit_limit=90, batch_limit=65),
        limits={"token_budget": 512, "max_running": 4},
    )
    return ReplicaPicture(
        status=status, rows={each.id: each for each in rows}, order=tuple(e.id for e in rows)
    )


ROWS = (row("q1"), row("q2", generated_tokens=50), row("q3", state="waiting", kv_blocks=0))
PICTURE = Picture(
    at=0.0,
    link=Link(url="unix:///x", state="live", age_s=0.5),
    fleet=Fleet(name="f", model="m", spec=FleetSpec(replicas=2)),
    totals=Totals(replicas=2, ready=2, waiting=1),
    replicas={"r0": replica("r0", rows=ROWS), "r1": replica("r1")},
    capabilities=frozenset(
        {"drain", "undrain", "headroom", "inject", "cancel", "cancel_where", "preempt", "fence", "release"}
        | {"restart", "tenants", "shed", "scale", "limits"}
    ),
)


def of_state(state: str) -> Picture:
    return dataclasses.replace(PICTURE, replicas={"r0": replica("r0", state), "r1": replica("r1")})


def linked(**fields: object) -> Picture:
    return dataclasses.replace(PICTURE, link=dataclasses.replace(PICTURE.link, **fields))  # type: ignore[arg-type]


TARGETS = {
    "drain": "r0",
    "undrain": "r0",
    "headroom": "r0",
    "inject": None,
    "inject-stop": None,
    "cancel": "q1",
    "preempt": "q1",
    "fence": "r0",
    "release": "r0",
    "restart": "r0",
    "tenant": "t",
    "limits": "r0",
    "cancel-where": None,
    "shed": None,
    "shed-off": None,
    "scale": None,
}


def test_names_are_unique_and_capitals_act() -> None:
    assert len({each.name for each in ACTIONS}) == len(ACTIONS)
    # Those without a key are for the command line and the command mode.
    assert {each.name for each in ACTIONS if not each.key} == {"restart", "cancel-where"}
    assert all(each.key.isupper() and len(each.key) == 1 for each in ACTIONS if each.key)
    assert {each.name for each in ACTIONS if each.danger == "destructive"} == {
        "cancel",
        "cancel-where",
        "fence",
    }
    assert {each.name for each in ACTIONS if each.when_stale} == {"drain", "cancel", "cancel-where", "fence"}


@pytest.mark.parametrize(
    ("name", "given", "command"),
    [
        ("drain", {}, Drain(mode=None, deadline_s=300.0, on_deadline="wait", actor="kim")),
        ("drain", {"mode": "wait"}, Drain(mode="wait", deadline_s=300.0, on_deadline="wait", actor="kim")),
        ("preempt", {"to": "r1"}, Preempt(to="r1", actor="kim")),
        (
            "drain",
            {"mode": "cancel", "deadline": "none", "on_deadline": "cancel", "force": True, "reason": "hot"},
            Drain(
                mode="cancel", deadline_s=None, on_deadline="cancel", force=True, reason="hot", actor="kim"
            ),
        ),
        ("undrain", {"reason": "cool"}, Undrain(reason="cool", actor="kim")),
        ("headroom", {"headroom": "20%"}, SetHeadroom(replica="r0", percent=20.0, actor="kim")),
        (
            "headroom",
            {"headroom": "7b", "tier": "batch", "revert_after": "10m"},
            SetHeadroom(replica="r0", blocks=7, tier="batch", revert_after_s=600.0, actor="kim"),
        ),
        ("inject", {}, Inject(profile="chat", rate_per_s=1.0, duration_s=60.0, actor="kim")),
        (
            "inject",
            {"profile": "mixed", "rate": "2.5", "duration": "30s", "tier": "batch"},
            Inject(profile="mixed", rate_per_s=2.5, duration_s=30.0, tier="batch", actor="kim"),
        ),
        (
            "inject",
            {"profile": "shared-prefix", "concurrency": "12", "seed": "7"},
            Inject(profile="shared-prefix", concurrency=12, duration_s=60.0, seed=7, actor="kim"),
        ),
        ("inject-stop", {}, StopInjection(actor="kim")),
        ("cancel", {}, Cancel(actor="kim")),
        (
            "cancel-where",
            {"where": "tenant=acme", "expect": "7"},
            CancelWhere(where="tenant=acme", expect=7, actor="kim"),
        ),
        ("fence", {"suspect": True}, Fence(suspect=True, actor="kim")),
        ("release", {}, Release(actor="kim")),
        ("restart", {"mode": "wait"}, Restart(mode="wait", deadline_s=60.0, actor="kim")),
        ("shed", {}, Shed(on=True, actor="kim")),
        ("shed-off", {}, Shed(on=False, actor="kim")),
        ("scale", {"replicas": "3"}, Scale(replicas=3, deadline_s=300.0, actor="kim")),
        (
            "tenant",
            {"kv_share": "25", "long_prefills": "1", "prompt_tokens": "none", "revert_after": "10m"},
            ChangeTenant(
                limits={"kv_share": 0.25, "long_prefills": 1, "prompt_tokens": None},
                revert_after_s=600.0,
                actor="kim",
            ),
        ),
        (
            "limits",
            {"token_budget": "256", "revert_after": "10m"},
            ChangeLimits(limits={"token_budget": 256}, replica="r0", revert_after_s=600.0, actor="kim"),
        ),
        ("tenant", {"tier": "batch"}, ChangeTenant(limits={"tier": "batch"}, actor="kim")),
        ("tenant", {"tier": "any"}, ChangeTenant(limits={"tier": None}, actor="kim")),
    ],
)
def test_what_is_sent(name: str, given: Given, command: Command) -> None:
    chosen = action(name)
    assert chosen.command(TARGETS[name], chosen.parse(given), actor="kim") == command


def test_a_dry_run_is_the_same_command_marked() -> None:
    chosen = action("drain")
    assert chosen.command("r0", chosen.parse({}), actor="", dry_run=True) == Drain(mode=None, dry_run=True)


def test_a_parameter_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ParamError, match="speed: '9' was given, allowed is one of reason"):
        action("cancel").parse({"speed": "9"})


def effect(name: str, given: Given, picture: Picture = PICTURE) -> str:
    chosen = action(name)
    return "\n".join(chosen.effect(picture, TARGETS[name], chosen.parse(given)))


def test_drain_names_who_finishes_who_moves_and_when_it_is_done() -> None:
    assert "2 running requests go on at r1" in effect("drain", {})
    said = effect("drain", {"mode": "wait"})
    assert "2 running requests finish first; the longest has at most 50 tokens to go" in said
    assert "1 waiting request goes to r1" in said
    assert "what runs after 5m is waited for all the same" in said
    assert "0 of 40 used blocks" in said
    assert "2 running requests are cancelled now" in effect("drain", {"mode": "cancel"})
    alone = dataclasses.replace(PICTURE, replicas={"r0": replica("r0", rows=ROWS)})
    assert "last ready replica" in effect("drain", {}, alone)
    assert "1 waiting request is held" in effect("drain", {}, alone)


@pytest.mark.parametrize(
    ("amount", "says"),
    [
        ("20%", "r0: interactive admitted up to 80 of 100 blocks (now 90), headroom 20%: admits fewer"),
        ("5b", "r0: interactive admitted up to 95 of 100 blocks (now 90), headroom 5%: admits more"),
        ("10%", "changes nothing"),
        ("70%", "r0: 40 used already, so none is admitted until fewer than 30 are"),
        ("500b", "admitted up to 0 of 100 blocks"),
    ],
)
def test_headroom_says_in_which_direction_it_works(amount: str, says: str) -> None:
    said = effect("headroom", {"headroom": amount})
    assert says in said
    assert "r1" not in said
    assert "nobody running is evicted" in said


def test_limits_that_are_not_asked_for_are_those_that_there_are() -> None:
    chosen = action("limits")
    assert chosen.effect(PICTURE, None, chosen.parse({})) == [
        chosen.unasked,
        "r0, r1 have token budget 512, batch size 4",
    ]
    assert effect("limits", {}).endswith("\nr0 has token budget 512, batch size 4")


def test_headroom_of_the_fleet_names_every_replica_and_the_batch_mark_is_its_own() -> None:
    chosen = action("headroom")
    lines = chosen.effect(
        PICTURE, None, chosen.parse({"headroom": "50%", "tier": "batch", "revert_after": "90s"})
    )
    assert [line.split(":")[0] for line in lines[:2]] == ["r0", "r1"]
    assert "now 65" in lines[0]
    assert "after 1m30s" in lines[-1]


def test_inject_and_cancel_say_what_they_do() -> None:
    assert "about 300 mixed requests in 1m" in effect("inject", {"profile": "mixed", "rate": "5"})
    assert "served by r0, r1" in effect("inject", {})
    assert "5 blocks are free by the next step" in effect("cancel", {})


@pytest.mark.parametrize("name", [each.name for each in ACTIONS])
def test_a_read_only_console_and_a_lost_link_allow_nothing(name: str) -> None:
    chosen = action(name)
    assert (
        chosen.allowed(dataclasses.replace(PICTURE, read_only=True), TARGETS[name])
        == "this console is read-only"
    )
    for state in ("starting", "connecting", "lost"):
        assert chosen.allowed(linked(state=state), TARGETS[name]) == "there is no connection to the server"


@pytest.mark.parametrize("name", ["drain", "headroom", "inject", "cancel"])
def test_an_old_view_turns_off_all_but_what_reduces_risk_and_that_says_how_old_it_is(name: str) -> None:
    chosen = action(name)
    assert chosen.allowed(PICTURE, TARGETS[name]) is None
    assert chosen.caution(PICTURE) is None
    old = linked(state="stale", age_s=7.2)
    if chosen.when_stale:
        assert chosen.allowed(old, TARGETS[name]) is None
    else:
        assert chosen.allowed(old, TARGETS[name]) == f"the view is 7 s old; {name} waits for a live one"
    assert chosen.caution(old) == "the view is 7 s old: what is shown may have changed"


def test_a_server_that_cannot_is_not_asked() -> None:
    without = dataclasses.replace(PICTURE, capabilities=frozenset({"watch"}))
    assert action("drain").allowed(without, "r0") == "this server cannot drain"


@pytest.mark.parametrize(
    ("state", "drain", "undrain"),
    [("ready", True, False), ("draining", True, True), ("drained", False, True), ("failed", False, False)],
)
def test_a_replica_must_be_in_the_right_state(state: str, drain: bool, undrain: bool) -> None:
    picture = of_state(state)
    assert (action("drain").allowed(picture, "r0") is None) is drain
    assert (action("undrain").allowed(picture, "r0") is None) is undrain


def test_targets_that_are_gone_are_said_to_be() -> None:
    assert action("drain").allowed(PICTURE, "r9") == "there is no replica r9"
    assert action("headroom").allowed(PICTURE, "r9") == "there is no replica r9"
    assert action("headroom").allowed(PICTURE, None) is None
    assert action("cancel").allowed(PICTURE, "q9") == "request q9 is not there any more"


def test_one_injection_at_a_time() -> None:
    busy = dataclasses.replace(
        PICTURE,
        fleet=Fleet(name="f", model="m", traffic=TrafficStatus(running=True, profile="chat", in_flight=3)),
    )
    assert action("inject").allowed(busy, None) == "chat traffic is running already; stop it first"
    assert action("inject-stop").allowed(busy, None) is None
    assert action("inject-stop").allowed(PICTURE, None) == "no test traffic is running"
    assert "3 in flight" in "\n".join(action("inject-stop").effect(busy, None, {}))


@pytest.mark.parametrize(
    ("total", "limit", "shown"), [(303, 272, "10%"), (100, 90, "10%"), (303, 253, "50b"), (300, 300, "0%")]
)
def test_the_present_headroom_is_the_present_mark(total: int, limit: int, shown: str) -> None:
    assert present_headroom(Kv(total=total, admit_limit=limit)) == shown
    amount = action("headroom").parse({"headroom": shown})["headroom"]
    assert isinstance(amount, Amount)
    assert new_limit(total, amount) == limit


@pytest.mark.parametrize(
    ("given", "unchanged"),
    [({"headroom": "10%"}, True), ({"headroom": "11%"}, False), ({"headroom": "35%", "tier": "batch"}, True)],
)
def test_headroom_knows_when_nothing_changes(given: Given, unchanged: bool) -> None:
    chosen = action("headroom")
    for target in ("r0", None):
        assert chosen.unchanged(PICTURE, target, chosen.parse(given)) is unchanged


@pytest.mark.parametrize(
    ("state", "key", "stands_for"), [("ready", "fence", "fence"), ("fenced", "fence", "release")]
)
def test_a_fenced_replica_is_released_by_the_same_key(state: str, key: str, stands_for: str) -> None:
    assert switched(key, of_state(state), "r0") == stands_for


def shed(on: bool) -> Picture:
    return dataclasses.replace(PICTURE, fleet=Fleet(name="f", model="m", spec=FleetSpec(replicas=2, shed=on)))


def test_shedding_is_turned_off_by_the_key_that_turned_it_on() -> None:
    assert switched("shed", shed(False), None) == "shed"
    assert switched("shed", shed(True), None) == "shed-off"
    assert action("shed").allowed(shed(True), None) == "batch is shed already"
    assert action("shed-off").allowed(shed(False), None) == "batch is not shed"


@pytest.mark.parametrize(
    ("name", "given", "undo"),
    [
        ("drain", {}, Undo("undrain", "r0", {})),
        ("undrain", {}, Undo("drain", "r0", {})),
        ("fence", {}, Undo("release", "r0", {})),
        ("shed", {}, Undo("shed-off", None, {})),
        ("scale", {"replicas": "7"}, Undo("scale", None, {"replicas": "2"})),
        ("headroom", {"headroom": "50%"}, Undo("headroom", "r0", {"headroom": "10b", "tier": "interactive"})),
        ("limits", {"max_running": "8"}, Undo("limits", "r0", {"max_running": "4"})),
        ("limits", {"max_running": "8", "max_long_prefills": "2"}, None),
        ("cancel", {}, None),
        ("restart", {}, None),
    ],
)
def test_what_takes_it_back_is_known_before_it_is_done(name: str, given: Given, undo: Undo | None) -> None:
    chosen = action(name)
    values = chosen.parse(given)
    assert chosen.undo(PICTURE, TARGETS[name], values) == undo
    if undo is not None:
        action(undo.action).parse(undo.given)


@pytest.mark.parametrize(
    ("name", "given", "picture", "done"),
    [
        ("drain", {}, of_state("draining"), False),
        ("drain", {}, dataclasses.replace(PICTURE, replicas={"r0": replica("r0", "drained", 0)}), True),
        ("undrain", {}, PICTURE, True),
        ("fence", {}, of_state("fenced"), True),
        ("headroom", {"headroom": "10%"}, PICTURE, True),
        ("headroom", {"headroom": "30%"}, PICTURE, False),
        ("limits", {"max_running": "4"}, PICTURE, True),
        ("limits", {"max_running": "4", "token_budget": "256"}, PICTURE, False),
        ("scale", {"replicas": "2"}, PICTURE, True),
        ("scale", {"replicas": "3"}, PICTURE, False),
        ("shed", {}, shed(True), True),
        ("shed-off", {}, shed(True), False),
    ],
)
def test_whether_it_came_about_is_seen(name: str, given: Given, picture: Picture, done: bool) -> None:
    chosen = action(name)
    verdict = chosen.verify(picture, TARGETS[name], chosen.parse(given))
    assert verdict is not None
    assert verdict.done is done


def test_what_is_gone_cannot_be_seen() -> None:
    assert action("drain").verify(PICTURE, "r9", {}) is None


@pytest.mark.parametrize(
    ("name", "target", "given", "word"),
    [
        ("scale", None, {"replicas": "1"}, "1"),
        ("scale", None, {"replicas": "5"}, ""),
        ("headroom", None, {"headroom": "20%"}, "2"),
        ("headroom", "r0", {"headroom": "20%"}, ""),
        ("limits", None, {"token_budget": "64"}, "2"),
        ("limits", "r0", {"token_budget": "64"}, ""),
        ("cancel-where", None, {"where": "tenant=a", "expect": "12"}, "12"),
    ],
)
def test_how_many_it_is_about_has_to_be_typed(name: str, target: str | None, given: Given, word: str) -> None:
    chosen = action(name)
    assert chosen.count(PICTURE, target, chosen.parse(given)) == word


def test_a_fence_says_who_goes_where() -> None:
    said = effect("fence", {})
    assert "r0 is killed now" in said
    assert "2 running requests go on at r1" in said
    assert "end with an error" in effect("fence", {"suspect": True})
    alone = dataclasses.replace(PICTURE, replicas={"r0": replica("r0", rows=ROWS)})
    assert "nothing serves new requests" in effect("fence", {}, alone)


def test_a_limit_that_does_not_fit_is_named() -> None:
    with pytest.raises(ParamError, match="kv_share: '140' was given, allowed is a percentage like 40%"):
        action("tenant").parse({"kv_share": "140"})


def test_a_share_is_in_percent_and_what_may_be_a_fraction_is_asked_about() -> None:
    parse = action("tenant").parse
    assert [parse({"kv_share": each})["kv_share"] for each in ("45", "45%", "0.5%", "1", "none")] == [
        45.0,
        45.0,
        0.5,
        1.0,
        "none",
    ]
    with pytest.raises(ParamError, match=r"'0.45' was given, allowed is a percentage: 45% or 0.45%"):
        parse({"kv_share": "0.45"})


def test_the_durations_that_an_error_names_would_be_taken() -> None:
    with pytest.raises(ParamError, match="allowed is a duration like 30s or 5m, from 1s to 10m"):
        action("inject").parse({"duration": "30m"})
    with pytest.raises(ParamError, match="a duration like 30s, 5m or 1h, from 1s to 24h, or none"):
        action("tenant").parse({"revert_after": "2d"})


def test_present_values_are_what_a_dialog_starts_from() -> None:
    assert given_now("scale", PICTURE, None) == {"replicas": "2"}
    assert given_now("headroom", PICTURE, "r0") == {"headroom": "10%"}
    assert given_now("drain", PICTURE, "r0") == {}
