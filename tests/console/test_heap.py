"""The C library is told to give back, where it can be told."""

import gc
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from infer_console import heap


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    heap._glibc.cache_clear()  # pyright: ignore[reportPrivateUsage]
    yield
    heap._glibc.cache_clear()  # pyright: ignore[reportPrivateUsage]


def test_one_heap_and_large_buffers_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[int, int] = {}
    library = SimpleNamespace(
        mallopt=lambda what, value: told.setdefault(what, value), malloc_trim=lambda _: 1
    )
    monkeypatch.setattr(heap, "_glibc", lambda: library)
    assert heap.settle()
    assert told == {-8: 1, -3: heap.LARGE_BYTES, -1: heap.SPARE_BYTES}
    assert heap.give_back()


def test_who_has_set_it_up_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    assert not heap.settle()
    assert not heap.give_back()


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda _name: SimpleNamespace())
    assert not heap.settle()
    assert not heap.give_back()


def test_what_is_there_is_left_alone_from_then_on() -> None:
    before = gc.get_freeze_count()
    try:
        heap.leave_alone()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
