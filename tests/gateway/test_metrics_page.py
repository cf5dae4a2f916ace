"""``/metrics`` against ``status()`` after real traffic: two ways to ask for the same numbers must agree."""

import asyncio
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from support.gateway import TEXT, until
from support.gateway_on_fleet import KV_BLOCKS, LONG_TOKENS, Served

pytestmark = pytest.mark.asyncio(loop_scope="session")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
LONG = {"model": "tiny", "prompt": "x", "max_tokens": LONG_TOKENS, "ignore_eos": True}
HISTOGRAMS = (
    "vllm:time_to_first_token_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:e2e_request_latency_seconds",
    "infer_step_duration_seconds",
)
REPLICA = {"model_name": "tiny", "engine": "r0"}


async def scrape(served: Served) -> Samples:
    response = await served.gateway.client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[(name, frozenset({**REPLICA, **labels}.items()))]


async def ask(served: Served, **fields: Any) -> dict[str, Any]:
    body = {"model": "tiny", "prompt": "Once upon", "max_tokens": 9, "temperature": 0, **fields}
    response = await served.gateway.post(TEXT, body)
    return response.json()


async def test_numbers_agree_with_status_and_with_what_was_sent(served: Served) -> None:
    before = await scrape(served)
    usages = [answer["usage"] for answer in await asyncio.gather(*(ask(served) for _ in range(5)))]
    _, writer = await served.gateway.raw(
        TEXT, {"model": "tiny", "prompt": "x", "max_tokens": 400, "ignore_eos": True}
    )
    await until(lambda: served.fleet.rows(state="running"), "a running request")
    writer.close()
    await served.idle()
    assert "error" in await ask(served, prompt=[70] * 2100)
    after = await scrape(served)

    def grew(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    (cancelled,) = [row for row in served.fleet.rows(state="finished") if row.finish_reason == "cancelled"][
        :1
    ]
    generated = sum(usage["completion_tokens"] for usage in usages)
    prompted = sum(usage["prompt_tokens"] for usage in usages)
    assert grew("vllm:generation_tokens_total") == generated + cancelled.generated_tokens
    assert grew("vllm:prompt_tokens_total") == prompted + cancelled.prompt_tokens
    assert grew("infer_tokens_total", kind="generated") == grew("vllm:generation_tokens_total")
    assert grew("vllm:request_success_total", finished_reason="length") == 5
    assert grew("vllm:request_success_total", finished_reason="abort") == 1
    assert grew("infer_requests_finished_total", reason="cancelled") == 1
    assert grew("vllm:e2e_request_latency_seconds_count") == 6
    assert grew("vllm:request_queue_time_seconds_count") == 6
    firsts = 5 + (cancelled.generated_tokens > 0)
    assert grew("vllm:time_to_first_token_seconds_count") == firsts
    assert grew("vllm:inter_token_latency_seconds_count") == grew("vllm:generation_tokens_total") - firsts
    assert grew("infer_steps_total") == grew("infer_step_duration_seconds_count") > 0
    rejected = (
        "infer_requests_rejected_total",
        frozenset({"model_name": "tiny", "code": "never_fits"}.items()),
    )
    assert after[rejected] - before.get(rejected, 0) == 1

    (replica,) = served.fleet.status().replicas
    assert value(after, "vllm:num_requests_running") == replica.running == 0
    assert value(after, "vllm:num_requests_waiting") == replica.waiting == 0
    assert value(after, "vllm:kv_cache_usage_perc") == 0
    assert value(after, "vllm:num_preemptions_total") == replica.preemptions
    looked_up = value(after, "vllm:prefix_cache_queries_total")
    assert looked_up == value(after, "vllm:prompt_tokens_total")
    assert replica.prefix_hit_ratio == value(after, "vllm:prefix_cache_hits_total") / looked_up
    assert value(after, "vllm:cache_config_info", block_size="16", num_gpu_blocks=str(KV_BLOCKS)) == 1
    blocks = {
        state: value(after, "infer_kv_blocks", state=state)
        for state in ("free", "used", "cached", "reserved")
    }
    assert blocks["free"] + blocks["used"] + blocks["cached"] == replica.kv.total == KV_BLOCKS
    assert replica.kv.admit_limit is not None
    assert blocks["reserved"] == KV_BLOCKS - replica.kv.admit_limit
    assert value(after, "infer_replica_state", state="ready") == 1
    assert value(after, "infer_replica_state", state="draining") == 0


async def test_gauges_move_while_requests_run(served: Served) -> None:
    connections = [await served.gateway.raw(TEXT, {**LONG, "stream": True}) for _ in range(3)]
    await until(lambda: len(served.fleet.rows()) == 3, "three requests")
    await until(lambda: len(served.fleet.rows(state="waiting")) == 1, "one of them waiting")
    samples = await scrape(served)
    (replica,) = served.fleet.status().replicas
    running = value(samples, "vllm:num_requests_running")
    assert (running, value(samples, "vllm:num_requests_waiting")) == (2, 1)
    assert running == value(samples, "infer_requests_running") == replica.running
    assert 0 < value(samples, "infer_kv_usage_ratio") <= 1
    for _, writer in connections:
        writer.close()
    await served.idle()


async def test_histograms_are_cumulative_and_the_open_format_parses(served: Served) -> None:
    await ask(served)
    samples = await scrape(served)
    for name in (
        "vllm:time_to_first_token_seconds",
        "vllm:request_queue_time_seconds",
        "infer_step_duration_seconds",
    ):
        buckets = sorted(
            (float(dict(labels)["le"]), count)
            for (each, labels), count in samples.items()
            if each == f"{name}_bucket"
        )
        counts = [count for _, count in buckets]
        assert counts == sorted(counts)
        assert buckets[-1] == (float("inf"), value(samples, f"{name}_count"))
        assert any(bound < 0.3 for bound, _ in buckets)
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    page = await served.gateway.client.get("/metrics", headers={"accept": accept})
    assert page.headers["content-type"].startswith("application/openmetrics-text")
    assert [family.name for family in parse_openmetrics(page.text)]


async def test_ended_requests_fill_vllms_and_opentelemetrys_histograms(served: Served) -> None:
    before = await scrape(served)
    answers = await asyncio.gather(*(ask(served) for _ in range(3)))
    await served.gateway.post(
        "/v1/chat/completions",
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": 5,
            "ignore_eos": True,
        },
    )
    await served.idle()
    after = await scrape(served)

    def grew(name: str, labels: dict[str, str]) -> float:
        key = (name, frozenset(labels.items()))
        return after[key] - before.get(key, 0.0)

    generated = sum(answer["usage"]["completion_tokens"] for answer in answers) + 5
    assert grew("vllm:request_generation_tokens_sum", REPLICA) == generated
    assert grew("vllm:request_generation_tokens_count", REPLICA) == 4
    assert grew("vllm:request_inference_time_seconds_sum", REPLICA) == pytest.approx(
        grew("vllm:request_prefill_time_seconds_sum", REPLICA)
        + grew("vllm:request_decode_time_seconds_sum", REPLICA)
    )
    common = {
        "gen_ai_provider_name": "infer-console",
        "gen_ai_request_model": "tiny",
        "gen_ai_response_model": "tiny",
    }
    text = {**common, "gen_ai_operation_name": "text_completion"}
    chat = {**common, "gen_ai_operation_name": "chat"}
    for labels, count in ((text, 3), (chat, 1)):
        assert grew("gen_ai_server_request_duration_seconds_count", {**labels, "error_type": ""}) == count
        assert grew("gen_ai_server_time_to_first_token_seconds_count", labels) == count
        assert grew("gen_ai_server_time_per_output_token_seconds_count", labels) == count


async def test_a_failed_request_is_told_by_the_code_of_its_error(served: Served) -> None:
    _, writer = await served.gateway.raw(TEXT, {**LONG})
    await until(lambda: served.fleet.rows(state="running"), "a running request")
    (row,) = served.fleet.rows(state="running")
    served.fleet.cancel(row.id)
    await served.idle()
    samples = await scrape(served)
    (count,) = [
        value
        for (name, labels), value in samples.items()
        if name == "gen_ai_server_request_duration_seconds_count"
        and ("error_type", "cancelled_by_operator") in labels
    ]
    assert count >= 1
    writer.close()
