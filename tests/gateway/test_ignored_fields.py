"""What a request says and nobody takes notice of is told in its answer's headers."""

import asyncio
from typing import Any

import pytest
from support.gateway import CHAT, TEXT, Gateway
from support.scripted_fleet import say

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"temperature": 0.5, "tool_choice": "none", "seed": None, "nothing": None}, None),
        ({"temprature": 0.5, "metadata": {"a": 1}}, "temprature, metadata"),
        ({"x\r\nset-cookie: a": 1, "ü": 2, "ok": 3}, "ok, +2"),
        ({f"f{number}": 1 for number in range(20)}, ", ".join(f"f{at}" for at in range(16)) + ", +4"),
    ],
)
async def test_what_nobody_read_is_named(
    gateway: Gateway, path: str, stream: bool, fields: dict[str, Any], told: str | None
) -> None:
    prompt = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "hi"}
    body = {"model": "tiny", **prompt, "max_tokens": 5, "stream": stream, **fields}
    asked = asyncio.create_task(gateway.post(path, body))
    say(await gateway.generation(), gateway.ids("a"), "length")
    response = await asked
    assert response.status_code == 200
    assert response.headers.get("x-infer-ignored") == told
    assert "set-cookie" not in response.headers
