"""The long campaigns of the suite run beside everything else: they give way to all other tests, which mostly
leave them a core."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import pytest
from simulation.campaign import CORE, FLEET, Campaign, Report, Subject
from simulation.counts import Counts
from simulation.fleet.tally import FleetTally
from simulation.simulate import STEPS
from simulation.tally import Tally

SEEDS = 240
SCENARIOS = 2_000
#: The workers end by themselves after so long, whoever forgot them.
AT_MOST_S = 1_500.0
#: With so many other tests it begins before them, at the lowest priority.
MANY = 300
GIVE_WAY = 19


T = TypeVar("T", bound=Counts)


class Background(Generic[T]):
    """One campaign, started at most once."""

    def __init__(self, what: str, subject: Subject[T], seeds: int) -> None:
        self._what = what
        self._subject = subject
        self._seeds = seeds
        self._campaign: Campaign[T] | None = None
        self._reader = ThreadPoolExecutor(1, thread_name_prefix=f"campaign-{what}")
        self._report: Future[Report[T]] | None = None

    def report(self, nice: int = 0) -> Future[Report[T]]:
        if self._report is None:
            self._campaign = Campaign(
                2, 0, self._seeds, STEPS, AT_MOST_S, nice, what=self._what, subject=self._subject
            )
            self._report = self._reader.submit(self._campaign.report)
        return self._report

    def end(self) -> None:
        if self._campaign is not None:
            self._campaign.__exit__()
        self._reader.shutdown()


BACKGROUND = Background("core", CORE, SEEDS)
FLEETS = Background("fleet", FLEET, SCENARIOS)
BY_FIXTURE = {"report": BACKGROUND, "fleet_report": FLEETS}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nobody waits for a report before all else is done."""
    if len(items) > MANY:
        items.sort(key=lambda item: not BY_FIXTURE.keys().isdisjoint(getattr(item, "fixturenames", ())))


def pytest_collection_finish(session: pytest.Session) -> None:
    if len(session.items) <= MANY or session.config.option.collectonly:
        return
    wanted = {name for item in _here(session) for name in getattr(item, "fixturenames", ())}
    for name, background in BY_FIXTURE.items():
        if name in wanted:
            background.report(GIVE_WAY)


def pytest_unconfigure() -> None:
    for background in BY_FIXTURE.values():
        background.end()


def _here(session: pytest.Session) -> list[pytest.Item]:
    return [item for item in session.items if "simulation" in item.path.parts]


@pytest.fixture(scope="session")
def report() -> Report[Tally]:
    """All seeds once. Whoever waits for it needs a longer timeout than a test has."""
    return BACKGROUND.report().result(AT_MOST_S + 60)


@pytest.fixture(scope="session")
def fleet_report() -> Report[FleetTally]:
    """All scenarios once."""
    return FLEETS.report().result(AT_MOST_S + 60)
