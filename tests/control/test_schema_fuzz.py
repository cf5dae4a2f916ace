"""Whatever is sent to the control API by its own description, it never fails, and answers as described.

The streams are left out: they have no end. ``INFER_FUZZ_EXAMPLES`` sets how many are sent."""

import asyncio
import os
import socket
from collections import Counter
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from infer_engine.control.api import build_control, control_routes
from infer_engine.control.context import Context
from infer_engine.control.openapi import describe
from infer_engine.listener import Listener
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

EXAMPLES = int(os.environ.get("INFER_FUZZ_EXAMPLES", "150"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def fuzz(described: dict[str, Any], base_url: str) -> Counter[int]:
    """How often each status was answered."""
    schema = schemathesis.openapi.from_dict(described)
    answered: Counter[int] = Counter()

    @seed(7)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema.as_strategy())
    def send(case: Any) -> None:
        response = case.call(base_url=base_url, headers={"host": "localhost"}, timeout=60)
        answered[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    send()
    return answered


@pytest.mark.timeout(600)
async def test_no_request_makes_it_fail(context: Context) -> None:
    described = describe([route for route in control_routes(context) if not route.stream])
    listening = socket.create_server(("127.0.0.1", 0))
    host, port = listening.getsockname()
    listener = Listener(build_control(context, lambda _: "admin"), listening)
    await listener.start()
    try:
        answered = await asyncio.to_thread(fuzz, described, f"http://{host}:{port}")
    finally:
        context.stopping.set()
        await listener.close()
    assert sum(answered.values()) >= EXAMPLES
    assert answered[200]
    assert not [status for status in answered if status >= 500 and status != 503]
