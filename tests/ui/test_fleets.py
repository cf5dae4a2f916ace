"""Several fleets in one console."""

import dataclasses
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from infer_console.past.export import Exported
from infer_console.past.timeline import Timeline
from infer_console.state.picture import Picture
from infer_console.ui.fleets import MOST_FLEETS, Fleets
from support import pictures
from support.demo import DemoApp
from support.fake_collector import FakeCollector
from support.pilot import Driven


class Fleet(FakeCollector):
    """What was is not asked for here."""

    fetching = ""

    def __init__(self, picture: Picture) -> None:
        super().__init__(picture)
        self.timeline = Timeline(picture.link.url)

    def fetch_past(self, at: float) -> None:
        raise AssertionError(f"nobody goes to {at}")

    def audit_until(self, at: float | None) -> None:
        assert at is None

    def export(self, from_at: float, to_at: float, path: Path, *, redact: bool = True) -> Future[Exported]:
        raise AssertionError(f"nobody exports {path}")


def named(picture: Picture, name: str) -> Picture:
    assert picture.fleet is not None
    return dataclasses.replace(picture, fleet=msgspec.structs.replace(picture.fleet, name=name))


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Driven, Fleet, Fleet]]:
    west, east = (
        Fleet(named(pictures.small(), "eu-west")),
        Fleet(named(pictures.incident(), "us east\x1b[2J")),
    )
    fleets = Fleets([west, east])
    app = DemoApp(fleets, theme="dark", past=fleets)
    async with app.run_test(size=(140, 40)) as pilot:
        driven = Driven(app, west, pilot)
        await driven.wait_for("eu-west")
        yield driven, west, east


async def test_the_others_alarms_are_counted_and_ctrl_n_goes_there() -> None:
    critical = sum(alarm.severity == "critical" for alarm in pictures.incident().alarms)
    assert critical
    async with two() as (driven, west, east):
        driven.app.frame()
        await driven.wait_for(f"us-east-2J {critical}▲")
        await driven.press("2")
        await driven.wait("details asked for", lambda: west.interest)
        assert east.interest == ()
        await driven.press("ctrl+n")
        await driven.wait_for("r2: 23 wait on KV blocks")
        assert (west.interest, west.listing, west.streams, west.timeline_of) == ((), False, (), None)
        assert driven.app.look.others[0].name == "eu-west"
        await driven.press("j", "2")
        await driven.wait("details asked for there", lambda: east.interest)


async def test_a_command_goes_to_the_fleet_that_is_shown() -> None:
    async with two() as (driven, west, east):
        await driven.press("colon")
        await driven.type("fleet us")
        await driven.press("tab", "enter")
        await driven.wait_for("r2: 23 wait on KV blocks")
        await driven.press("D")
        await driven.wait("asked there", lambda: east.commands)
        assert west.commands == []


async def test_only_news_of_the_others_make_a_frame() -> None:
    west, east = Fleet(pictures.small()), Fleet(pictures.incident())
    fleets = Fleets([west, east])
    woken: list[None] = []
    fleets.on_picture(lambda: woken.append(None))
    west.show(pictures.small())
    west.show(pictures.small())
    assert len(woken) == 2
    east.show(pictures.incident())
    east.show(pictures.incident())
    assert len(woken) == 3
    east.show(pictures.incident(alarms=()))
    assert len(woken) == 4
    fleets.on_picture(None)
    west.show(pictures.small())
    assert len(woken) == 4


def test_names_are_plain_and_each_is_there_once() -> None:
    same = [Fleet(named(pictures.small(), name)) for name in ("a", "a", "a", "\x1b]0;x", "é" * 90, "")]
    names = Fleets(same).names
    assert len(set(names)) == 6
    assert all(name.isascii() and name.isprintable() and " " not in name and len(name) < 40 for name in names)
    for number in (0, MOST_FLEETS + 1):
        with pytest.raises(ValueError, match=f"{number} fleets were given"):
            Fleets(same[:1] * number)


async def test_with_one_fleet_it_is_said_how_to_have_more() -> None:
    from support.pilot import drive

    async with drive(pictures.small()) as driven:
        await driven.press("ctrl+n")
        await driven.wait_for("--connect may be given several times")
        await driven.press("0")
        await driven.wait_for("--connect may be given several times")


async def test_the_fleets_by_number_each_with_its_alarms() -> None:
    async with two() as (driven, _, _):
        await driven.press("0")
        await driven.wait_for("─ Fleets ")
        rows = {
            number: row for row in driven.lines for number in ("1 eu-west", "2 us-east-2J") if number in row
        }
        assert len(rows) == 2
        assert all("LIVE" in row for row in rows.values())
        assert "▲" in rows["2 us-east-2J"]
        await driven.press("9")  # is none
        await driven.wait_for("─ Fleets ")
        await driven.press("2")
        await driven.wait_for("fleet: us-east-2J")
        assert "─ Fleets " not in driven.text
