"""Who else is attached, and what environment this is."""

import dataclasses
import re

import pytest
from infer_console.contexts import COLOURS
from infer_console.state.picture import Environment, Picture
from infer_console.view.banner import banner
from infer_console.view.fleet_list import fleet_rows
from infer_console.view.look import Look, OtherFleet
from infer_console.view.people import also, others
from infer_console.view.row import plain
from infer_console.view.scrubber import Scrub
from infer_engine.protocol import Attached, LeaseHolder, Simulation
from msgspec.structs import replace
from support import pictures


def watched(*people: tuple[str, str], subject: str | None = "uid:0", more: int = 0) -> Picture:
    picture = pictures.incident()
    assert picture.fleet is not None
    attached = [Attached(who=who, role=role, since_at=0.0) for who, role in people]  # type: ignore[arg-type]
    fleet = replace(picture.fleet, attached=attached, attached_more=more)
    return dataclasses.replace(picture, fleet=fleet, subject=subject, role="operator")


def test_this_console_is_not_among_the_others() -> None:
    picture = watched(("uid:0 (kim)", "operator"), ("uid:0 (kim)", "operator"), ("raj", "viewer"))
    assert [each.who for each in others(picture)] == ["uid:0 (kim)", "raj"]
    said = also(picture)
    assert said is not None
    assert said[0] == "also: kim rw, raj ro"


def test_alone_says_nothing_and_a_crowd_is_counted() -> None:
    assert also(watched(("uid:0 (kim)", "operator"))) is None
    crowd = [(f"u{number}", "viewer") for number in range(6)]
    said = also(watched(("uid:0", "operator"), *crowd, more=2))
    assert said is not None
    assert said[0] == "also: u0 ro, u1 ro, u2 ro +5"


def test_of_one_account_this_console_is_the_one_that_bears_its_name() -> None:
    """After a reconnect the server lists it behind the other."""
    picture = watched(("uid:0 (kim)", "operator"), ("uid:0 (raj)", "operator"))
    assert [each.who for each in others(dataclasses.replace(picture, claim="raj"))] == ["uid:0 (kim)"]
    assert [each.who for each in others(dataclasses.replace(picture, claim="kim"))] == ["uid:0 (raj)"]
    assert [each.who for each in others(dataclasses.replace(picture, claim="ann"))] == ["uid:0 (raj)"]


def test_who_else_is_here_is_told_on_a_narrow_screen_rather_than_the_model() -> None:
    picture = watched(("uid:0", "operator"), ("kim", "operator"), ("raj", "viewer"))
    assert picture.fleet is not None
    simulated = replace(
        picture.fleet,
        simulated=True,
        simulation=Simulation(deployment="x", speed=1.0, achieved_speed=0.7, seed=0, elapsed_s=1.0),
    )
    shown = plain(banner(dataclasses.replace(picture, fleet=simulated), Look(), 80, pictures.NOW))
    assert "+kim rw +1" in shown
    assert simulated.model not in shown


def test_who_shows_a_token_is_called_by_its_name_whatever_account_they_came_from() -> None:
    people = ("kim-laptop (dev)", "operator"), ("raj (dev)", "viewer"), ("uid:7 (dev)", "admin")
    said = also(watched(*people))
    assert said is not None
    assert said[0] == "also: kim-laptop rw, raj ro, dev rw"


def test_the_banner_tells_who_is_here() -> None:
    picture = watched(("uid:0 (kim)", "operator"), ("raj", "viewer"))
    text = plain(banner(picture, Look(), 160, pictures.NOW))
    assert "you: operator" in text
    assert "also: raj ro" in text


@pytest.mark.parametrize("width", [38, 39, 40, 60, 80, 120])
@pytest.mark.parametrize("named", [Environment(), Environment(name="eu-west", production=True)])
def test_how_fresh_the_view_is_and_that_it_is_simulated_have_room_everywhere(
    named: Environment, width: int
) -> None:
    picture = watched(("uid:0 (kim)", "operator"))
    assert picture.fleet is not None
    slow = replace(
        picture.fleet,
        name="a-fleet-with-a-long-name",
        simulated=True,
        simulation=Simulation(deployment="x", speed=1.0, achieved_speed=0.7, seed=0, elapsed_s=1.0),
    )
    row = banner(dataclasses.replace(picture, fleet=slow, environment=named), Look(), width, pictures.NOW)
    text = plain(row)
    assert sum(span.cells for span in row) == width
    assert re.search(r" LIVE [.\d]+s", text), text
    assert " SIMULATED ×1" in text
    assert (" PROD " in text) == named.production


def test_a_context_has_its_colour() -> None:
    roles: list[str] = []
    for colour in (*COLOURS, None):
        picture = dataclasses.replace(pictures.incident(), environment=Environment("eu-west", colour))
        row = banner(picture, Look(), 160, pictures.NOW)
        roles += [span.role for span in row if span.text == "eu-west"]
    assert len(set(roles)) == len(roles) == len(COLOURS) + 1
    assert roles[-1] == "accent"


def test_the_banner_says_who_holds_the_lease_and_until_when() -> None:
    picture = watched(("uid:0 (kim)", "operator"))
    assert picture.fleet is not None
    lease = LeaseHolder(holder="kim\x1b[2J", purpose="upgrade", expires_at=pictures.NOW + 20)
    held = dataclasses.replace(picture, fleet=replace(picture.fleet, lease=lease))
    for width in (200, 80):
        text = plain(banner(held, Look(), width, pictures.NOW))
        assert "lease: kim" in text
        assert ("(upgrade) until " in text) is (width == 200)
        assert "\x1b" not in text
    assert "lease" not in plain(banner(picture, Look(), 200, pictures.NOW))


def test_read_only_is_the_last_fact_to_go() -> None:
    picture = dataclasses.replace(watched(("uid:0 (kim)", "viewer"), ("raj", "viewer")), role="viewer")
    picture = dataclasses.replace(picture, read_only=True)
    for width in (80, 120):
        assert "read-only (viewer)" in plain(banner(picture, Look(), width, pictures.NOW))


@pytest.mark.parametrize(
    ("ahead_s", "said"), [(-600.0, "10m00s ahead"), (150.0, "2m30s behind"), (0.0, None)]
)
def test_a_clock_that_differs_from_the_servers_is_said_and_makes_no_other_fleet_stale(
    ahead_s: float, said: str | None
) -> None:
    here = dataclasses.replace(pictures.incident(), ahead_s=ahead_s)
    there = dataclasses.replace(here, at=here.at - ahead_s, ahead_s=0.0)
    shown = plain(banner(here, Look(), 200, here.at))
    assert (f"your clock {said}" in shown) if said is not None else ("your clock" not in shown)
    rows = [plain(row) for row in fleet_rows({"a": here, "b": there}, "a", 100, 20, here.at)]
    assert sum("LIVE" in row for row in rows) == 2


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("live", [True, False])
def test_a_moment_within_a_gap_is_not_shown_as_though_it_were_known(live: bool, width: int) -> None:
    picture = pictures.incident()
    look = Look(scrub=Scrub(from_at=0.0, to_at=picture.at + 900.0, at=picture.at, live=live))
    for age_s, said in ((2.0, None), (750.0, "NOTHING TOLD FOR 12m")):
        link = dataclasses.replace(picture.link, age_s=age_s, state="live" if said is None else "stale")
        shown = plain(banner(dataclasses.replace(picture, link=link), look, width, picture.at))
        assert (said in shown) if said is not None else ("NOTHING" not in shown), shown


def test_a_fleet_that_never_answered_does_not_look_like_one_that_is_well() -> None:
    picture = pictures.incident()
    others = (OtherFleet("a", 0, "live"), OtherFleet("b", 0, "connecting"), OtherFleet("c", 0, "lost"))
    row = banner(picture, Look(others=others), 200, picture.at)
    assert "b CONNECTING  c LOST  a  " in plain(row)
    none = pictures.starting()
    gone = dataclasses.replace(
        none,
        link=dataclasses.replace(none.link, state="connecting", message="cannot connect \x1b[2J refused"),
    )
    rows = [plain(each) for each in fleet_rows({"a": picture, "b": gone}, "a", 100, 20, picture.at)]
    assert any("CONNECTING" in each and "cannot connect ␛[2J refused" in each for each in rows)
