"""Memory that is held and time that is lost for nothing.

What the C library keeps of what was given back to it. Left alone, glibc has a heap for every few threads,
and after the first large buffer takes such from there, too: between what stays, holes of many megabytes grow.
Where the C library is another one, or somebody has set it up (``MALLOC_ARENA_MAX`` and the like), nothing is
done."""

import ctypes
import functools
import gc
import os

#: Of ``mallopt``, as in ``malloc.h``.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
#: A buffer from there on is the system's again as soon as it is free.
LARGE_BYTES = 256 * 1024
#: So much that is free stays at the heap's end.
SPARE_BYTES = 1024 * 1024


def settle() -> bool:
    """One heap, and large buffers apart. To be called before there are threads; False where nothing was
    done."""
    library = _glibc()
    if library is None:
        return False
    wanted = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, LARGE_BYTES), (_TRIM_THRESHOLD, SPARE_BYTES))
    done = [library.mallopt(what, value) for what, value in wanted]
    return all(done)


def give_back() -> bool:
    """What is free to the system: worth a millisecond now and then, and when something large has gone. Any
    thread; False where nothing was given."""
    library = _glibc()
    return library is not None and bool(library.malloc_trim(0))


def leave_alone() -> None:
    """What is there by now, modules above all, stays to the end: the collector of garbage need not go through
    it again, which takes a tenth of a second each time, and a key that comes meanwhile waits for it."""
    gc.collect(1)
    gc.freeze()


@functools.cache
def _glibc() -> ctypes.CDLL | None:
    if any(name.startswith("MALLOC_") for name in os.environ):
        return None
    try:
        library = ctypes.CDLL(None)
        library.malloc_trim.argtypes = [ctypes.c_size_t]
        library.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    except (OSError, AttributeError, TypeError):  # no such library, or none that can be told
        return None
    return library
