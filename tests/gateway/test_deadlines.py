"""A request's deadline: how it is given, and what the client sees when it has passed."""

import json
import os
import signal
import time
from typing import Any

import openai
import pytest
from support.gateway_on_fleet import LONG_TOKENS, Served

pytestmark = pytest.mark.asyncio(loop_scope="session")

BODY: dict[str, Any] = {"model": "tiny", "prompt": [40] * 20, "max_tokens": LONG_TOKENS}


def body(**more: Any) -> dict[str, Any]:
    return {**BODY, "extra_body": {"ignore_eos": True, **more}}


async def test_an_answer_that_takes_too_long_is_a_gateway_timeout(served: Served) -> None:
    with pytest.raises(openai.APIStatusError) as late:
        await served.call(lambda client: client.completions.create(**body(deadline_s=0.05)))
    assert (late.value.status_code, late.value.code) == (504, "deadline_exceeded")
    assert late.value.response.headers["x-should-retry"] == "false"
    await served.idle()


async def test_a_stream_ends_in_an_error_frame_and_without_done(served: Served) -> None:
    """Its replica sleeps between the first token and the deadline, so that the answer is not complete before
    it, however fast the machine is."""
    deadline_s = 2.0
    replica = served.fleet.replica("r0").pid
    assert replica is not None

    def ask(client: openai.OpenAI) -> list[str]:
        headers = {"x-infer-deadline-s": str(deadline_s)}
        asked_s = time.monotonic()
        with client.completions.with_streaming_response.create(
            **body(), stream=True, extra_headers=headers
        ) as response:
            data = (line for line in response.iter_lines() if line.startswith("data:"))
            first = next(data)
            os.kill(replica, signal.SIGSTOP)
            try:
                time.sleep(max(0.0, asked_s + deadline_s + 0.2 - time.monotonic()))
            finally:
                os.kill(replica, signal.SIGCONT)
            return [first, *data]

    lines = await served.call(ask)
    last = json.loads(lines[-1].removeprefix("data:"))
    assert last["error"]["code"] == "deadline_exceeded"
    assert 1 < len(lines) < LONG_TOKENS, "some of it came before"
    await served.idle()


@pytest.mark.parametrize("given", [0, -1, "soon", 86_401, True, [1]])
async def test_what_is_no_deadline_is_refused_by_name(served: Served, given: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await served.call(lambda client: client.completions.create(**body(deadline_s=given)))
    assert refused.value.param == "deadline_s"


@pytest.mark.parametrize("given", ["0", "nan", "inf", "1e9", "later", ""])
async def test_nor_a_header_that_is_none(served: Served, given: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await served.call(
            lambda client: client.completions.create(**body(), extra_headers={"x-infer-deadline-s": given})
        )
    assert refused.value.param == "x-infer-deadline-s"


async def test_body_and_header_must_agree(served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await served.call(
            lambda client: client.completions.create(
                **body(deadline_s=2.0), extra_headers={"x-infer-deadline-s": "3"}
            )
        )
    assert refused.value.param == "deadline_s"
