"""What is held in memory."""

import gc
import sys
import types

#: Shared by all, and nobody's own.
NOT_HELD = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def held_bytes(root: object) -> int:
    """Of everything that is reached from there."""
    seen, todo, total = set[int](), [root], 0
    while todo:
        each = todo.pop()
        if id(each) not in seen and not isinstance(each, NOT_HELD):
            seen.add(id(each))
            total += sys.getsizeof(each)
            todo += gc.get_referents(each)
    return total
