"""A real browser. Only for those who name this folder: ``make test-web``."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The suite as a whole does without a browser."""
    del collection_path
    named = (config.invocation_params.dir / argument.split("::")[0] for argument in config.args)
    return None if any(path.resolve().is_relative_to(HERE) for path in named) else True
