"""Python's search for reference cycles, kept from stopping the event loop.

Little here is in a cycle: most of what ends is freed at once. The search looks at every live object all the
same, and while it does all streams stand still: with 2,000 of them for some 200 ms, every few seconds. So it
leaves out what the server has when it is ready and will have to its end, and looks less often. What does get
into a cycle is still found, a little later.
"""

import gc

#: New objects, less those freed, until the young ones are looked at: a few milliseconds' worth.
YOUNG = 10_000
#: Looks at the young until those are looked at that outlived one, and of these until all are.
MIDDLE, OLD = 20, 50


def look_seldom() -> None:
    """For the rest of the process's life."""
    gc.set_threshold(YOUNG, MIDDLE, OLD)


def leave_out_what_is_here() -> None:
    """Look once at everything, then never again at what is alive now."""
    gc.collect()
    gc.freeze()
