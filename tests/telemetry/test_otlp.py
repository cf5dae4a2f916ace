"""Requests as traces at a real collector's door; and that nobody waits for it."""

import asyncio
import itertools
import json
import subprocess
import sys
import time

import pytest
from infer_engine.fleet.trace_parent import TraceParent, read_traceparent
from infer_engine.settings import ServerSettings
from infer_engine.telemetry import otlp_traces
from infer_engine.telemetry.otlp import OtlpExporter
from infer_engine.telemetry.otlp_traces import OtlpTraces, collector_url, require_libraries
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from support.fleets import Bench, finished, running_fleet, until
from support.otlp_collector import Collector, attributes, collecting
from support.server import serving

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT_SPAN = "b7ad6b7169203331"


def traces_of(bench: Bench, url: str, **settings: float) -> OtlpTraces:
    exporter = OtlpExporter(collector_url(url), fleet="f", version="1", incarnation="i")
    return OtlpTraces(bench.fleet, exporter, model="tiny", **{"sample_ratio": 1.0, **settings})


def wait_for(collector: Collector, roots: int) -> list[Span]:
    deadline_s = time.monotonic() + 60
    while True:
        found = [span for span in collector.spans if span.kind == Span.SPAN_KIND_SERVER]
        if len(found) >= roots:
            return found
        assert time.monotonic() < deadline_s, f"{len(found)} of {roots} traces came"
        time.sleep(0.02)


def test_a_request_to_a_server_is_one_trace_of_its_clients() -> None:
    prompt = "a secret that no collector may see"
    ask = {"model": "smollm2-135m-instruct", "max_tokens": 5, "ignore_eos": True, "stream": True}
    with collecting() as collector, serving(simulate="llama-8b@1xh100", otlp=collector.url) as server:
        with server.gateway() as client:
            ask["model"] = client.get("/v1/models").json()["data"][0]["id"]
            client.post(
                "/v1/chat/completions",
                json={**ask, "messages": [{"role": "user", "content": prompt}]},
                headers={"traceparent": f"00-{TRACE}-{CLIENT_SPAN}-01"},
            ).raise_for_status()
            client.post(
                "/v1/completions",
                json={**ask, "prompt": prompt},
                headers={"traceparent": f"00-{TRACE}-{CLIENT_SPAN}-00"},
            ).raise_for_status()
            whole = client.post("/v1/completions", json={**ask, "prompt": prompt, "stream": False})
            chat, text = sorted(wait_for(collector, 2), key=lambda span: span.name)
            page = client.get("/metrics").text
        assert not server.errors
    spans = collector.spans
    assert 'infer_otlp_traces_total{outcome="dropped"} 0.0' in page
    assert chat.trace_id.hex() == TRACE
    assert chat.parent_span_id.hex() == CLIENT_SPAN
    assert chat.name == f"chat {ask['model']}"
    told = attributes(chat)
    assert told["gen_ai.request.model"] == ask["model"]
    assert told["gen_ai.usage.output_tokens"] == 5
    assert told["gen_ai.usage.input_tokens"] > 5
    assert told["gen_ai.response.finish_reasons"] == ["length"]
    assert told["infer.replica"] == "r0"
    assert told["infer.simulated"] is True
    names = [event.name for event in chat.events]
    assert [name for name in names if name != "held"][:4] == [
        "arrived",
        "received",
        "authenticated",
        "tokenized",
    ]
    assert {"routed", "queued", "admitted", "first_token", "first_byte", "finished"} <= set(names)
    stages = [span for span in spans if span.parent_span_id == chat.span_id]
    assert [span.name for span in stages] == [
        "receive",
        "authenticate",
        "tokenize",
        "queue",
        "prefill",
        "decode",
    ]
    assert all(span.trace_id == chat.trace_id for span in stages)
    assert stages[0].start_time_unix_nano == chat.start_time_unix_nano
    for before, after in itertools.pairwise(stages):
        assert before.end_time_unix_nano == after.start_time_unix_nano
    assert stages[-1].end_time_unix_nano <= chat.end_time_unix_nano
    # The one that its client does not keep is not there; the one without a client's trace has its own.
    assert attributes(text)["gen_ai.response.id"] == whole.headers["x-request-id"]
    assert text.trace_id.hex() != TRACE
    assert not text.parent_span_id
    assert len([span for span in spans if span.kind == Span.SPAN_KIND_SERVER]) == 2
    for word in (b"secret", prompt.encode(), b"default"):
        assert not any(word in request.SerializeToString() for request in collector.requests)


def test_a_collector_that_hangs_or_is_gone_costs_traces_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otlp_traces, "PERIOD_S", 0.01)
    monkeypatch.setattr(otlp_traces, "MOST_QUEUED", 4)
    monkeypatch.setattr(otlp_traces, "BATCH", 2)
    monkeypatch.setattr(otlp_traces, "GOODBYE_S", 0.05)

    async def scenario(url: str, hangs: Collector | None) -> OtlpTraces:
        async with running_fleet() as bench:
            traces = traces_of(bench, url)
            traces.start()
            await finished(bench.submit())
            if hangs is not None:
                await until(lambda: hangs.asked, "an attempt")
                for _ in range(20):
                    await finished(bench.submit())
                assert traces.counts["dropped"] == 16  # 20 ended, 4 may wait
                assert not traces.counts["exported"]
            else:
                await until(lambda: traces.counts["failed"], "a failure")
            assert len(bench.events("finish")) == (1 if hangs is None else 21)
            traces.close()
            return traces

    with collecting() as collector:
        collector.answers.clear()
        asyncio.run(scenario(collector.url, collector))
        gone = collector.url
    assert asyncio.run(scenario(gone, None)).counts["exported"] == 0


def test_failed_requests_say_why_and_unsampled_or_injected_ones_are_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otlp_traces, "PERIOD_S", 0.01)

    async def scenario(collector: Collector) -> None:
        async with running_fleet(held=True) as bench:
            kept, none = traces_of(bench, collector.url), traces_of(bench, collector.url, sample_ratio=0.0)
            kept.start()
            none.start()
            await until(lambda: bench.fleet.ready)
            injected, request = bench.submit(synthetic=True), bench.submit()
            for each in (injected, request):
                bench.fleet.cancel(each.id, code="cancelled_by_operator")
            for replica in bench.fleet.replica_ids():
                bench.launcher.now(replica).runner.release()
            await finished(injected, request)
            await until(lambda: kept.counts["exported"])
            kept.close()
            none.close()
            assert not none.counts

    with collecting() as collector:
        asyncio.run(scenario(collector))
        (root,) = wait_for(collector, 1)
    assert root.status.code == Status.STATUS_CODE_ERROR
    assert attributes(root)["error.type"] == "cancelled_by_operator"


@pytest.mark.parametrize(
    ("header", "parent"),
    [
        (f"00-{TRACE}-{CLIENT_SPAN}-01", TraceParent(int(TRACE, 16), int(CLIENT_SPAN, 16), True)),
        (f"cc-{TRACE}-{CLIENT_SPAN}-02-more", TraceParent(int(TRACE, 16), int(CLIENT_SPAN, 16), False)),
        (f"00-{TRACE}-{CLIENT_SPAN}-01-more", None),
        (f"ff-{TRACE}-{CLIENT_SPAN}-01", None),
        (f"00-{'0' * 32}-{CLIENT_SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{CLIENT_SPAN}-01", None),
        ("x" * 10_000, None),
        (None, None),
    ],
)
def test_traceparent(header: str | None, parent: TraceParent | None) -> None:
    assert read_traceparent(header) == parent


@pytest.mark.parametrize("url", ["collector:4318", "ftp://c", "http://u:p@c", "http://c?x=1", "http://c:x"])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match=r"^otlp: "):
        collector_url(url)


def test_the_path_is_the_collectors_own_unless_given() -> None:
    assert collector_url("http://c:4318/") == "http://c:4318/v1/traces"
    assert collector_url("https://c/other") == "https://c/other"


def test_without_the_libraries_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_traces, "_PARTS", ("opentelemetry.not_there.at_all",))
    with pytest.raises(ValueError, match=r"infer-console\[otel\]"):
        require_libraries()


def test_a_server_without_traces_does_not_load_the_libraries() -> None:
    script = (
        "import sys, infer_engine.server; print([n for n in sys.modules if n.startswith('opentelemetry')])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=120, check=True)
    assert json.loads(result.stdout.decode().replace("'", '"')) == []
    assert ServerSettings().otlp is None
