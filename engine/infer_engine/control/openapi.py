"""The control API described as OpenAPI 3.1, from the types that it is made of and the table of its routes."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from infer_engine.control.routes import ControlRoute
from infer_engine.protocol import PROTOCOL_VERSION, Problem

REF = "#/components/schemas/{name}"
PROBLEM_TYPE = "application/problem+json"

_PARAMETERS: dict[str, dict[str, Any]] = {
    "Idempotency-Key": {
        "description": "a command that is sent again under its key is not done again, for 24 h",
        "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    },
    "If-Match": {
        "description": "the resource_version that the change is for, in quotes; a dry run tells it",
        "schema": {"type": "string", "pattern": "^[ !-~]{1,255}$"},
    },
    "Lease-Token": {
        "description": "the token of the lease on the fleet, by its holder",
        "schema": {"type": "integer", "minimum": 0, "maximum": 10**15},
    },
}


def describe(routes: Sequence[ControlRoute]) -> dict[str, Any]:
    """The document, in the order of the routes."""
    types = [Problem, *(route.answer for route in routes), *(route.body for route in routes if route.body)]
    unique = list(dict.fromkeys(types))
    refs, components = msgspec.json.schema_components(unique, ref_template=REF)
    schema = dict(zip(unique, refs, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema)
    return {
        "openapi": "3.1.0",
        "info": {"title": "infer-console control API", "version": str(PROTOCOL_VERSION)},
        "paths": paths,
        "components": {"schemas": dict(sorted(components.items()))},
    }


def _operation(route: ControlRoute, schema: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    problem = {"description": "refused", "content": {PROBLEM_TYPE: {"schema": schema[Problem]}}}
    kind = "text/event-stream" if route.stream else "application/json"
    answer: dict[str, Any] = {kind: {"schema": schema[route.answer]}}
    if route.answer is bytes:
        answer = {"application/zstd": {}}
    described: dict[str, Any] = {
        "summary": route.says,
        "description": f"Needs the role {route.permission}.",
        "operationId": _name(route),
        "parameters": _parameters(route),
        "responses": {
            "200": {"description": route.says, "content": answer},
            "4XX": problem,
            "503": problem,
        },
    }
    if route.body is not None:
        body = {"application/json": {"schema": schema[route.body]}}
        described["requestBody"] = {"content": body, "required": False}
    return described


def _parameters(route: ControlRoute) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    found += [
        {
            "name": query.name,
            "in": "query",
            "description": query.says,
            "required": query.required,
            "schema": query.schema,
        }
        for query in route.query
    ]
    if route.body is not None:
        for name, described in _PARAMETERS.items():
            if name != "If-Match" or route.changes:
                found.append({"name": name, "in": "header", "required": False, **described})
    return found


def _name(route: ControlRoute) -> str:
    words = re.findall(r"[a-z]+", route.path.removeprefix("/control/v1"))
    return "_".join([route.method.lower(), *words])
