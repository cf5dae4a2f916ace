"""Writes docs/openapi.json: the control API as this source has it. No server is started."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from infer_engine.control.api import control_routes
from infer_engine.control.openapi import describe

TARGET = Path(__file__).parents[1] / "docs/openapi.json"


def main() -> int:
    # The table of routes is built around a server's parts; to be described, none of them does anything.
    context: Any = SimpleNamespace(
        fleet=SimpleNamespace(
            is_simulated=False,
            replica_ids=list,
            epoch="",
            specs=SimpleNamespace(saved=None),
            feed=SimpleNamespace(wall=None),
        ),
        operations=None,
        audit=None,
        keys=None,
        leases=None,
        versions=lambda: None,
    )
    described = describe(control_routes(cast("Any", context)))
    TARGET.write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    print(TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
