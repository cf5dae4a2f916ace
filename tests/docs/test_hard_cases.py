"""The tests that the documentation names exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("page", ["hard-cases.md", "scheduler.md", "proof.md"])
def test_every_test_that_is_named_exists(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    files = set(re.findall(r"(tests/[\w/]+\.py)", text))
    assert named or files
    assert sorted(named - TESTS) == []
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []
