"""The real model answers a real question through every door a client has."""

import json
import subprocess
from pathlib import Path

import httpx2
import openai
import pytest
from support.server import EngineServer

pytestmark = pytest.mark.model

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
MODEL = "smollm2-135m-instruct"


def client(server: EngineServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.gateway_url}/v1", api_key="unused", max_retries=0)


def test_curl_streams_the_greedy_answer_frame_by_frame(real_server: EngineServer) -> None:
    body = {
        "model": MODEL,
        "messages": QUESTION,
        "temperature": 0,
        "max_tokens": 32,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    curl = subprocess.run(
        [
            "curl", "--silent", "--no-buffer", "--noproxy", "*", "--max-time", "60",
            "--header", "content-type: application/json", "--data", json.dumps(body),
            f"{real_server.gateway_url}/v1/chat/completions",
        ],
        capture_output=True,
        text=True,
        timeout=90,
    )  # fmt: skip
    assert curl.returncode == 0, curl.stderr
    frames = [line.removeprefix("data: ") for line in curl.stdout.splitlines() if line.startswith("data: ")]
    assert frames[-1] == "[DONE]"
    chunks = [json.loads(frame) for frame in frames[:-1]]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    pieces = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"]]
    assert sum(bool(piece) for piece in pieces) > 3, "the answer came in one piece"
    assert "Paris" in "".join(pieces)
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1] == "stop"
    usage = chunks[-1]["usage"]
    assert chunks[-1]["choices"] == []
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens"] > 10


def test_the_openai_client_gets_the_same_streaming_and_not(real_server: EngineServer) -> None:
    with client(real_server) as openai_client:
        whole = openai_client.chat.completions.create(
            model=MODEL, messages=QUESTION, temperature=0, max_tokens=32
        )
        stream = openai_client.chat.completions.create(
            model=MODEL, messages=QUESTION, temperature=0, max_tokens=32, stream=True
        )
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        models = [model.id for model in openai_client.models.list()]
    assert "Paris" in (whole.choices[0].message.content or "")
    assert streamed == whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "stop"
    assert models == [MODEL]


def test_completions_with_ignore_eos_run_to_the_last_token(real_server: EngineServer) -> None:
    with httpx2.Client(base_url=real_server.gateway_url, timeout=60, trust_env=False) as http:
        answer = http.post(
            "/v1/completions",
            json={
                "model": MODEL,
                "prompt": "The capital of France is",
                "temperature": 0,
                "max_tokens": 48,
                "ignore_eos": True,
            },
        ).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 48
    assert "Paris" in answer["choices"][0]["text"]


def test_who_asks_again_finds_the_beginning_cached_and_gets_the_same_answer(
    real_server: EngineServer, console: Path
) -> None:
    """Three times the same, on two replicas: one of them is asked twice."""
    prompt = "Once upon a time there was a river. " * 12
    with httpx2.Client(base_url=real_server.gateway_url, timeout=60, trust_env=False) as http:
        body = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 16, "ignore_eos": True}
        answers = {http.post("/v1/completions", json=body).json()["choices"][0]["text"] for _ in range(3)}
    assert len(answers) == 1
    answer = subprocess.run(
        [str(console), "--connect", real_server.control_url, "status", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
    replicas = json.loads(answer.stdout)["replicas"]
    for kv in (replica["kv"] for replica in replicas):
        assert (kv["used"], kv["free"] + kv["cached"]) == (0, kv["total"])
    assert max(replica["kv"]["cached"] for replica in replicas) > 5
    assert max(replica["prefix_hit_ratio"] or 0 for replica in replicas) > 0.2


def test_status_shows_two_ready_replicas(real_server: EngineServer, console: Path) -> None:
    answer = subprocess.run(
        [str(console), "--connect", real_server.control_url, "status", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
    status = json.loads(answer.stdout)
    assert status["version"] == 1
    assert status["fleet"]["model"] == MODEL
    assert status["fleet"]["simulated"] is False
    assert [replica["state"] for replica in status["replicas"]] == ["ready", "ready"]
    for replica in status["replicas"]:
        kv = replica["kv"]
        assert kv["free"] + kv["cached"] + kv["used"] == kv["total"] == 256
        assert kv["admit_limit"] == 230
