"""Answers that must match something, through our gateway, from real servers."""

import json
from pathlib import Path

import openai
import pytest
from support.before_peers import operating
from support.cli import Run
from support.peer import LONG_S, Peer

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1800)]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("peer", ["vllm", "llamacpp"], indirect=True)
def test_an_answer_keeps_to_its_schema(peer: Peer, console: Path, run: Run) -> None:
    with operating(console, peer) as gateway:
        gateway.run = run
        gateway.wait_ready()
        with openai.OpenAI(
            base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=LONG_S
        ) as client:
            answer = client.chat.completions.create(
                model=client.models.list().data[0].id,
                messages=[{"role": "user", "content": "Who is Ada?"}],
                max_tokens=80,
                temperature=0.0,
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "person", "schema": SCHEMA},
                },
            )
    assert answer.choices[0].finish_reason == "stop"
    document = json.loads(answer.choices[0].message.content or "")
    assert set(document) == {"name", "age"}
    assert isinstance(document["age"], int)
