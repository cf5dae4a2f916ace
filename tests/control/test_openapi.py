"""The committed description is that of the server, and the server does what it says."""

import json
from pathlib import Path

from infer_engine.control.api import control_routes
from infer_engine.control.context import Context
from infer_engine.control.openapi import describe

COMMITTED = Path(__file__).parents[2] / "docs/openapi.json"


async def test_the_committed_description_is_the_servers(context: Context) -> None:
    described = describe(control_routes(context))
    assert json.loads(COMMITTED.read_text(encoding="utf-8")) == json.loads(json.dumps(described)), (
        "make openapi writes it anew"
    )


async def test_every_route_is_described(context: Context) -> None:
    routes = control_routes(context)
    described = describe(routes)
    operations = [operation for path in described["paths"].values() for operation in path.values()]
    assert len(operations) == len(routes)
    assert len({operation["operationId"] for operation in operations}) == len(routes)
    assert all(
        ("requestBody" in operation) == (route.method != "GET")
        for operation, route in zip(
            [described["paths"][route.path][route.method.lower()] for route in routes], routes, strict=True
        )
    )
