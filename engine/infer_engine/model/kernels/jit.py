"""How everything here is compiled: kept on disk, free of Python's lock, with C's arithmetic."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy")(function))


def compiled_loosely(function: Function) -> Function:
    """Sums may be made in another order, so that loops over rows become vectors; always the same order for
    the same lengths. NaN and infinity keep their meaning."""
    loose = {"reassoc", "contract", "nsz", "arcp"}
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy", fastmath=loose)(function))


def compiled_inline(function: Function) -> Function:
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy", inline="always")(function))


def compiled_closure(function: Function) -> Function:
    """Of a function that is made by another: numba keeps it with those that call it."""
    return cast(Function, njit(nogil=True, error_model="numpy")(function))
