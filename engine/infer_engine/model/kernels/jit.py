"""How everything here is compiled: kept on disk, free of Python's lock, with C's arithmetic."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

from infer_engine.model.kernels.compiled import kept_on_disk

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    return cast(Function, njit(cache=kept_on_disk(), nogil=True, error_model="numpy")(function))


def compiled_loosely(function: Function) -> Function:
    """Sums may be made in another order, so that loops over rows become vectors; always the same order for
    the same lengths. NaN and infinity keep their meaning."""
    loose = {"reassoc", "contract", "nsz", "arcp"}
    decorate = njit(cache=kept_on_disk(), nogil=True, error_model="numpy", fastmath=loose)
    return cast(Function, decorate(function))


def compiled_inline(function: Function) -> Function:
    return cast(
        Function, njit(cache=kept_on_disk(), nogil=True, error_model="numpy", inline="always")(function)
    )


def compiled_closure(name: str) -> Callable[[Function], Function]:
    """Of a function that is made by another: numba keeps it with those that call it. ``name`` is this
    one's alone: what numba calls it in machine code else has nothing but a number to tell it from its
    siblings, and one compiled now may get the number of another's that was kept."""

    def decorate(function: Function) -> Function:
        function.__qualname__ = f"{function.__qualname__}.{name}"
        return cast(Function, njit(nogil=True, error_model="numpy")(function))

    return decorate
