"""Tests of the core take it as a fixture, so that the mutation check can hand them a broken one."""

import pytest
from simulation.core_modules import REAL, Core


@pytest.fixture
def core() -> Core:
    return REAL
