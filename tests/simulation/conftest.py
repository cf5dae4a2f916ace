"""The long campaign of the suite runs beside everything else: it gives way to all other tests, which mostly
leave it a core."""

from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from simulation.campaign import Campaign, Report
from simulation.simulate import STEPS

SEEDS = 240
#: The workers end by themselves after so long, whoever forgot them.
AT_MOST_S = 1_500.0
#: With so many other tests it begins before them, at the lowest priority.
MANY = 300
GIVE_WAY = 19


class Background:
    """Started at most once."""

    def __init__(self) -> None:
        self._campaign: Campaign | None = None
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="campaign")
        self._report: Future[Report] | None = None

    def report(self, nice: int = 0) -> Future[Report]:
        if self._report is None:
            self._campaign = Campaign(2, 0, SEEDS, STEPS, AT_MOST_S, nice)
            self._report = self._reader.submit(self._campaign.report)
        return self._report

    def end(self) -> None:
        if self._campaign is not None:
            self._campaign.__exit__()
        self._reader.shutdown()


BACKGROUND = Background()


def pytest_collection_finish(session: pytest.Session) -> None:
    needs_it = any("report" in getattr(item, "fixturenames", ()) for item in _here(session))
    if needs_it and len(session.items) > MANY and not session.config.option.collectonly:
        BACKGROUND.report(GIVE_WAY)


def pytest_unconfigure() -> None:
    BACKGROUND.end()


def _here(session: pytest.Session) -> list[pytest.Item]:
    return [item for item in session.items if "simulation" in item.path.parts]


@pytest.fixture(scope="session")
def report() -> Report:
    """All seeds once. Whoever waits for it needs a longer timeout than a test has."""
    return BACKGROUND.report().result(AT_MOST_S + 60)
