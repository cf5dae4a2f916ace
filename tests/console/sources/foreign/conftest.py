import pytest
from infer_console import connect
from infer_console.watched import Pace


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of tests change what they tell at once, and are looked at that often."""
    monkeypatch.setattr(connect, "DEFAULT_PACE", Pace(look_s=0.05, resolve_s=0.05, grace_s=20.0, gpus_s=0.05))
