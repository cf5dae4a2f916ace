"""The modules of ``infer_engine.core`` under test: as they are, or with one piece of their text replaced."""

import importlib
import itertools
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import infer_engine.core

PACKAGE = "infer_engine.core"
#: In import order.
MODULES = (
    "request",
    "plan",
    "prefix",
    "swap",
    "blocks",
    "limits",
    "line",
    "queues",
    "counters",
    "deadlines",
    "refusal",
    "barriers",
    "admission",
    "batch",
    "batch_plan",
    "scheduler",
    "invariants",
    "observe",
)
_serial = itertools.count()


class Core:
    """Looked up by name, so that a mutated copy takes the real one's place. Hence the ``Any``."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        self.modules = modules

    def __getattr__(self, name: str) -> Any:
        """Only what was not looked up before comes here."""
        for module in self.modules.values():
            if hasattr(module, name):
                value = getattr(module, name)
                setattr(self, name, value)
                return value
        raise AttributeError(name)


REAL = Core({name: importlib.import_module(f"{PACKAGE}.{name}") for name in MODULES})


@contextmanager
def mutated(module: str, old: str, new: str) -> Generator[Core]:
    """A private copy of the core in which ``old`` in ``module`` reads ``new``; ``old`` must occur exactly
    once."""
    package = f"mutant{next(_serial)}"
    folder = Path(infer_engine.core.__path__[0])
    modules: dict[str, ModuleType] = {}
    try:
        for name in MODULES:
            source = (folder / f"{name}.py").read_text()
            if name == module:
                if source.count(old) != 1:
                    raise ValueError(f"{module}.py has {source.count(old)} times: {old!r}")
                source = source.replace(old, new)
            copy = ModuleType(f"{package}.{name}")
            sys.modules[copy.__name__] = copy
            code = compile(
                source.replace(f"from {PACKAGE}.", f"from {package}."), f"{package}/{name}.py", "exec"
            )
            exec(code, copy.__dict__)
            modules[name] = copy
        sys.modules[package] = ModuleType(package)
        yield Core(modules)
    finally:
        for name in [key for key in sys.modules if key.split(".")[0] == package]:
            del sys.modules[name]
