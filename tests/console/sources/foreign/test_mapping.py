"""Recorded pages of real servers, and written ones of those that do not run here, in our protocol's words."""

import json

import pytest
from infer_console.sources.failures import NotUnderstoodError
from infer_engine.foreign import page as page_module
from infer_engine.foreign.adapters import ADAPTERS, read
from infer_engine.foreign.asking import Answer
from infer_engine.foreign.estimate import percentiles
from infer_engine.foreign.llamacpp import slot_row
from infer_engine.foreign.page import Page
from infer_engine.foreign.reading import MAX_ENGINES, MAX_REASONS, Reading
from infer_engine.foreign.watching import MOST_REMEMBERED, Watching
from infer_engine.protocol import Kv, Status
from support.foreign_server import llamacpp_pages, page, vllm_pages


def reading(kind: str, pages: dict[str, bytes], statuses: dict[str, int] | None = None) -> Reading:
    adapter = ADAPTERS[kind]  # type: ignore[index]
    answers = {
        path: Answer(path, (statuses or {}).get(path, 200 if path in pages else 404), pages.get(path, b""))
        for path in adapter.paths
    }
    return read(adapter, answers)


def watched(kind: str, *each: dict[str, bytes], apart_s: float = 10.0) -> tuple[Watching, Status]:
    watching = Watching("host:8000")
    status = None
    for number, pages in enumerate(each):
        status = watching.take(reading(kind, pages), number * apart_s, 1000.0 + number * apart_s)
    assert status is not None
    return watching, status


def lines(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def vllm(*metrics: str) -> dict[str, bytes]:
    return {"/metrics": lines(*metrics)}


# --- vLLM


def test_a_busy_vllm() -> None:
    _, status = watched("vllm", vllm_pages("before"), vllm_pages("busy"))
    assert (status.fleet.model, status.fleet.version) == ("smollm2", "vLLM 0.32.0")
    assert status.fleet.context_length == 2048
    (engine,) = status.replicas
    assert (engine.id, engine.state, engine.health, engine.foreign) == ("e0", "ready", "ok", "vLLM")
    assert (engine.running, engine.waiting, engine.waiting_reasons) == (4, 1, {"capacity": 1})
    # One of the 182 is never given out; what of the rest still holds a prefix is not told.
    assert engine.kv == Kv(block_size=128, total=181, used=4)
    assert status.totals.kv_used_ratio == pytest.approx(4 / 181)
    assert engine.tokens_per_s == pytest.approx(4.5)  # 45 tokens in 10 s
    assert (engine.preemptions, engine.prefix_hit_ratio) == (0, 0.0)


def test_percentiles_are_of_the_buckets_since_the_first_look_in_the_window() -> None:
    _, status = watched("vllm", vllm_pages("before"), vllm_pages("after"))
    # 5 first tokens: one within 1-2.5 s, three within 2.5-5 s, one within 10-20 s.
    assert status.totals.ttft_s.p50 == pytest.approx(2.5 + 2.5 * 1.5 / 3)
    assert status.totals.ttft_s.p99 == pytest.approx(10 + 10 * 0.95)
    # 195 gaps, 97 of them up to 0.3 s, 94 within 0.3-0.4 s.
    assert status.totals.itl_s.p50 == pytest.approx(0.3 + 0.1 * 0.5 / 94)
    assert status.replicas[0].ttft_s == status.totals.ttft_s
    assert status.totals.finished == {"stop": 0, "length": 5, "cancelled": 0, "error": 0, "repetition": 0}
    assert status.replicas[0].health == "idle"


def test_nothing_observed_is_no_percentile_and_one_look_is_no_rate() -> None:
    _, once = watched("vllm", vllm_pages("after"))
    assert once.totals.ttft_s.p50 is None
    assert once.totals.tokens_per_s is None
    _, twice = watched("vllm", vllm_pages("after"), vllm_pages("after"))
    assert twice.totals.ttft_s.p50 is None
    assert twice.totals.tokens_per_s == 0.0


def test_names_of_before_are_understood() -> None:
    old = vllm(
        'vllm:num_requests_running{model_name="m"} 3.0',
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.5',
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0',
        'vllm:gpu_prefix_cache_queries_total{model_name="m"} 200.0',
        'vllm:gpu_prefix_cache_hits_total{model_name="m"} 50.0',
        'vllm:time_per_output_token_seconds_bucket{le="0.01",model_name="m"} 0.0',
        'vllm:time_per_output_token_seconds_bucket{le="0.02",model_name="m"} 0.0',
        'vllm:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 0.0',
    )
    later = {
        "/metrics": old["/metrics"].replace(b'"0.02",model_name="m"} 0.0', b'"0.02",model_name="m"} 10.0')
    }
    later["/metrics"] = later["/metrics"].replace(
        b'"+Inf",model_name="m"} 0.0', b'"+Inf",model_name="m"} 10.0'
    )
    _, status = watched("vllm", old, later)
    (engine,) = status.replicas
    assert engine.kv == Kv(block_size=16, total=1000, used=500)
    assert engine.prefix_hit_ratio == 0.25
    assert engine.itl_s.p50 == pytest.approx(0.015)
    assert engine.waiting is None  # not told, not none


def test_ranks_are_rows_and_kv_is_weighted_by_capacity() -> None:
    metrics = [
        f'vllm:{name}{{engine="{rank}",model_name="m"}} {value}'
        for rank, running, used in (("0", 2, 0.9), ("1", 5, 0.1), ("10", 1, 0.1))
        for name, value in (("num_requests_running", running), ("kv_cache_usage_perc", used))
    ]
    metrics += [
        f'vllm:cache_config_info{{block_size="16",engine="{rank}",num_gpu_blocks="{total}"}} 1.0'
        for rank, total in (("0", 101), ("1", 801), ("10", 101))
    ]
    _, status = watched("vllm", vllm(*metrics))
    assert [(each.id, each.running, each.kv.used) for each in status.replicas] == [
        ("e0", 2, 90),
        ("e1", 5, 80),
        ("e10", 1, 10),
    ]
    assert status.totals.kv_used_ratio == pytest.approx(180 / 1000)  # their mean would be 0.37
    assert status.totals.running == 8


def test_an_engine_that_sleeps_is_not_ready() -> None:
    _, status = watched(
        "vllm",
        vllm(
            'vllm:num_requests_running{engine="0"} 0.0',
            'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0.0',
            'vllm:engine_sleep_state{engine="0",sleep_state="discard_all"} 1.0',
        ),
    )
    assert (status.replicas[0].state, status.replicas[0].error) == ("drained", "asleep (discard_all)")
    assert status.totals.ready == 0


def test_health_that_fails_is_bad() -> None:
    watching = Watching("h")
    pages = vllm_pages("busy")
    status = watching.take(reading("vllm", pages, {"/health": 503}), 0.0, 0.0)
    assert (status.replicas[0].state, status.replicas[0].health) == ("failed", "bad")
    assert status.replicas[0].error == "/health answers 503"


def test_a_batch_in_which_no_counter_moves_is_stalled_whatever_health_says() -> None:
    busy = vllm_pages("busy")
    _, status = watched("vllm", busy, busy, busy, apart_s=16.0)
    assert status.replicas[0].health == "stalled"
    assert status.replicas[0].step_age_s == 32.0


def test_counters_that_fall_are_a_restart_and_no_negative_rate() -> None:
    watching, status = watched("vllm", vllm_pages("before"), vllm_pages("after"), vllm_pages("before"))
    assert status.replicas[0].incarnation == 1
    assert status.replicas[0].tokens_per_s is None
    assert [(event.reason, event.replica) for event in watching.events] == [("RESTARTED", "e0")]


def test_a_process_that_began_later_is_a_restart_even_where_counters_grew() -> None:
    first = vllm(
        "vllm:num_requests_running 0.0",
        "vllm:generation_tokens_total 5.0",
        "process_start_time_seconds 100.0",
    )
    later = vllm(
        "vllm:num_requests_running 0.0",
        "vllm:generation_tokens_total 9.0",
        "process_start_time_seconds 300.0",
    )
    watching, status = watched("vllm", first, later)
    assert status.replicas[0].incarnation == 1
    assert len(watching.events) == 1


def test_a_rank_that_comes_and_goes_is_told_of() -> None:
    one = vllm('vllm:num_requests_running{engine="0"} 0.0')
    two = vllm('vllm:num_requests_running{engine="0"} 0.0', 'vllm:num_requests_running{engine="1"} 0.0')
    watching, status = watched("vllm", one, two, one)
    assert [(event.replica, event.reason) for event in watching.events] == [("e1", "ready"), ("e1", "gone")]
    assert [each.id for each in status.replicas] == ["e0"]


# --- SGLang


def test_sglang() -> None:
    _, status = watched(
        "sglang",
        {"/metrics": page("sglang.metrics"), "/server_info": b'{"version":"0.5","max_running_requests":64}'},
    )
    first, second = status.replicas
    # Two tensor-parallel ranks tell the same twelve.
    assert (first.running, first.waiting, first.waiting_reasons) == (12, 7, {"grammar": 2})
    assert first.kv == Kv(block_size=1, total=100_000, used=75_000, cached=20_000, free=5_000)
    assert second.kv == Kv(block_size=1, total=300_000, used=30_000)
    assert (first.tokens_per_s, second.tokens_per_s) == (410.5, 90.0)
    assert (first.preemptions, second.preemptions) == (7, None)
    assert first.max_running is None  # told for both together
    totals = status.totals
    assert totals.kv_used_ratio == pytest.approx(105_000 / 400_000)
    assert totals.finished == {"ended": 96, "cancelled": 4}
    assert status.fleet.version == "SGLang 0.5"
    # Latencies are told for both together, and need a second look.
    assert first.ttft_s.p50 is None


def test_sglangs_front_end_tells_latencies_for_all_ranks() -> None:
    first = page("sglang.metrics")
    later = first
    for bound in ("0.2", "0.4", "+Inf"):
        was = {"0.2": "50.0", "0.4": "90.0", "+Inf": "100.0"}[bound]
        grown = str(float(was) + 10)
        later = later.replace(
            f'le="{bound}",model_name="qwen"}} {was}'.encode(),
            f'le="{bound}",model_name="qwen"}} {grown}'.encode(),
        )
    later = later.replace(
        b'generation_tokens_total{is_streaming="true",model_name="qwen"} 4000',
        b'generation_tokens_total{is_streaming="true",model_name="qwen"} 4500',
    )
    _, status = watched("sglang", {"/metrics": first}, {"/metrics": later})
    assert status.totals.ttft_s.p50 == pytest.approx(0.15)  # ten more within 0.1-0.2 s
    assert status.replicas[0].ttft_s.p50 is None
    assert status.totals.tokens_per_s == pytest.approx(50.0)


def test_sglang_without_metrics_says_what_to_do() -> None:
    told = reading("sglang", {"/server_info": b'{"model_path":"q"}', "/model_info": b'{"model_path":"q"}'})
    assert "--enable-metrics" in told.note
    assert (told.model, told.engines[0].running) == ("q", None)


# --- llama.cpp


def test_llamacpps_slots_are_the_roster() -> None:
    watching, status = watched("llamacpp", llamacpp_pages("before"), llamacpp_pages("busy"), apart_s=5.0)
    (engine,) = status.replicas
    assert (engine.running, engine.waiting, engine.max_running) == (4, 2, 4)
    rows = watching.rows["e0"]
    assert [row.id for row in rows] == ["task-8", "task-6", "task-5", "task-4"]
    assert (rows[0].phase, rows[0].prompt_tokens, rows[0].generated_tokens) == ("decode", 72, 10)
    assert (rows[0].cached_tokens, rows[0].max_tokens, rows[0].kv_blocks) == (0, 40, 82)
    assert engine.kv.total == 4 * 2048
    assert engine.kv.used == sum(row.kv_blocks for row in rows)
    assert engine.ttft_s.p50 is None  # it has no histograms
    assert engine.preemptions is None
    # It counts tokens of requests that have ended; those in its slots are added.
    assert engine.tokens_per_s is not None
    assert status.fleet.model == "smollm2-135m-instruct.gguf"


def test_what_a_slot_had_of_the_prompt_is_told() -> None:
    slot = json.loads(llamacpp_pages("busy")["/slots"])[0]
    row = slot_row(slot | {"n_prompt_tokens_cache": 71, "n_prompt_tokens_processed": 1})
    assert row is not None
    assert (row.prompt_tokens, row.cached_tokens, row.computed_tokens) == (72, 71, 82)


def test_llamacpp_keeps_prompts_in_idle_slots() -> None:
    _, status = watched("llamacpp", llamacpp_pages("after"))
    kv = status.replicas[0].kv
    assert (kv.used, kv.cached) == (0, 4 * 111 - 0)
    assert kv.free == 8192 - 444


def test_llamacpp_without_metrics_is_what_its_slots_tell() -> None:
    pages = llamacpp_pages("busy")
    del pages["/metrics"]
    told = reading("llamacpp", pages, {"/metrics": 501})
    assert (told.engines[0].running, told.engines[0].waiting) == (4, None)
    assert "--metrics" in told.note


def test_llamacpp_that_loads_is_starting() -> None:
    pages = dict.fromkeys(
        ("/metrics", "/slots", "/props", "/health"), b'{"error":{"message":"Loading model"}}'
    )
    told = reading("llamacpp", pages, dict.fromkeys(pages, 503))
    assert (told.engines[0].state, told.engines[0].error) == ("starting", "loading its model")


def test_a_restart_is_noticed_though_the_server_was_seen_loading_in_between() -> None:
    watching = Watching("host:8080")
    loads = dict.fromkeys(("/metrics", "/slots", "/props", "/health"), b'{"error":{"code":503}}')
    anew = llamacpp_pages("busy") | {"/metrics": page("llamacpp-before.metrics")}
    statuses = dict.fromkeys(loads, 503)
    for number, told in enumerate(
        (
            reading("llamacpp", llamacpp_pages("after")),
            reading("llamacpp", loads, statuses),
            reading("llamacpp", loads, statuses),
            reading("llamacpp", anew),
        )
    ):
        status = watching.take(told, 10.0 * number, 1000.0 + 10.0 * number)
    assert [event.reason for event in watching.events] == ["starting", "RESTARTED", "ready"]
    assert status.replicas[0].incarnation == 1
    assert status.replicas[0].tokens_per_s is None


def test_when_a_process_began_is_kept_while_it_does_not_say() -> None:
    def told(*more: str) -> dict[str, bytes]:
        return vllm("vllm:num_requests_running 0.0", "vllm:generation_tokens_total 5.0", *more)

    began, later = (f"process_start_time_seconds {each}" for each in ("100.0", "300.0"))
    watching, _ = watched("vllm", told(began), told(), told(later))
    assert [event.reason for event in watching.events] == ["RESTARTED"]


# --- what lies


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html>no metrics here</html>",
        b'vllm:num_requests_running{engine="0" 1.0\n',
        b"\x00\xff\xfe",
        b"vllm:num_requests_running one\n",
    ],
)
def test_garbage_is_not_understood(garbage: bytes) -> None:
    with pytest.raises(NotUnderstoodError):
        reading("vllm", {"/metrics": garbage})


def test_another_servers_metrics_are_not_taken_for_vllms() -> None:
    with pytest.raises(NotUnderstoodError, match="does not look like vLLM"):
        reading("vllm", llamacpp_pages("busy"))


def test_values_that_cannot_be_are_unknown() -> None:
    _, status = watched(
        "vllm",
        vllm(
            'vllm:num_requests_running{engine="0"} -3.0',
            'vllm:num_requests_waiting{engine="0"} NaN',
            'vllm:kv_cache_usage_perc{engine="0"} 7.0',
            'vllm:cache_config_info{block_size="-4",engine="0",num_gpu_blocks="None"} 1.0',
        ),
    )
    (engine,) = status.replicas
    assert (engine.running, engine.waiting) == (None, None)
    assert engine.kv == Kv()
    assert status.totals.kv_used_ratio is None


@pytest.mark.parametrize("value", ["1e300", "9" * 400, "9" * 5000])
def test_what_nobody_can_have_counted_is_not_told(value: str) -> None:
    """Alone it is no integer of use to anybody; two together are no number at all."""
    names = ("num_requests_running", "num_requests_waiting", "num_preemptions_total")
    told = [f'vllm:{name}{{engine="0",twice="{each}"}} {value}' for name in names for each in "ab"]
    told += [f'vllm:request_success_total{{finished_reason="{each}"}} {value}' for each in ("stop", "length")]
    told += [
        f'vllm:num_requests_waiting_by_reason{{engine="0",reason="capacity",twice="{e}"}} {value}'
        for e in "ab"
    ]
    _, status = watched("vllm", vllm('vllm:cache_config_info{engine="0"} 1', *told), vllm(*told))
    (engine,) = status.replicas
    assert (engine.running, engine.waiting, engine.preemptions, engine.waiting_reasons) == (
        None,
        None,
        None,
        {},
    )
    assert status.totals.finished == {}


def test_sglang_uses_no_more_than_there_is() -> None:
    pool = ("sglang:max_total_num_tokens 100", "sglang:num_running_reqs 1", "sglang:kv_evictable_tokens 1e9")
    for share, used in (("50", 100), ("-5", 0)):
        _, status = watched("sglang", {"/metrics": lines(*pool, f"sglang:token_usage {share}")})
        kv = status.replicas[0].kv
        assert (kv.total, kv.used, kv.cached, kv.free) == (100, used, 100, 0)


def test_a_row_is_one_engine_whatever_its_label_comes_to() -> None:
    running = [
        f'vllm:num_requests_running{{engine="{rank}"}} {n}' for n, rank in enumerate(("0", "E0", "é0"), 1)
    ]
    watching, status = watched("vllm", vllm(*running), vllm(*running))
    assert [(each.id, each.running) for each in status.replicas] == [("e0", 1), ("e0-2", 2), ("e0-3", 3)]
    assert not watching.events  # nothing restarted


def test_a_label_that_never_says_the_same_is_no_reason() -> None:
    told = [f'vllm:request_success_total{{finished_reason="{n}"}} 1' for n in range(1000)]
    _, status = watched("vllm", vllm('vllm:num_requests_running{engine="0"} 1', *told))
    assert len(status.totals.finished) == MAX_REASONS


def test_rows_that_never_come_again_are_forgotten() -> None:
    watching = Watching("host:8000")
    for number in range(0, 3 * MOST_REMEMBERED, MAX_ENGINES):
        ranks = range(number, number + MAX_ENGINES)
        told = vllm(
            *(f'vllm:num_requests_running{{engine="{rank}"}} 1' for rank in ranks),
            f"process_start_time_seconds {number * 10}",
        )
        watching.take(reading("vllm", told), float(number), float(number))
    assert len(watching.remembered) <= MOST_REMEMBERED + MAX_ENGINES


def test_slots_of_one_request_are_one_row_and_their_sizes_have_an_end() -> None:
    slot = {
        "id_task": 7,
        "is_processing": True,
        "n_ctx": 2**52,
        "n_prompt_tokens": 5,
        "next_token": [{"n_decoded": 1}],
    }
    pages = {"/slots": json.dumps([slot] * 5).encode(), "/health": b"{}"}
    watching, status = watched("llamacpp", pages)
    assert [row.id for row in watching.rows["e0"]] == ["task-7"]
    assert status.replicas[0].kv == Kv()


def test_what_is_missing_is_said_once() -> None:
    one, other = {"/metrics": b"", "/server_info": b"{}"}, {"/metrics": lines("sglang:num_running_reqs 1")}
    watching, _ = watched("sglang", one, one, other)
    assert [event.message for event in watching.events if event.reason == "note"] == [
        "it tells no metrics: start it with --enable-metrics",
        "it tells everything again",
    ]


def test_a_line_without_an_end_is_not_read_through() -> None:
    with pytest.raises(NotUnderstoodError, match="a line of more than 65,536 characters"):
        Page.read("x{" + ",".join(f'a{n}="1"' for n in range(300_000)) + "} 1\n")
    # Nor is each blank of a comment.
    comment = "#" + " " * 60_000 + "TYPE x" + " " * 3_000 + "counter\n"
    assert Page.read(comment * 60 + "x 1\n").samples == {"x_total": [({}, 1.0)]}


def test_a_label_is_no_way_to_a_terminal() -> None:
    _, status = watched(
        "vllm", vllm('vllm:num_requests_running{engine="\x1b]0;x\x07[red]../é",model_name="\x1b[2J"} 1.0')
    )
    assert status.replicas[0].id == "0xred"
    # What is text stays as it is told: the screen makes it safe, as it does with ours.
    assert status.fleet.model == "\x1b[2J"


def test_buckets_that_do_not_fit_together_are_nothing() -> None:
    assert percentiles({}).p50 is None
    assert percentiles({float("inf"): 5.0}).p50 == 0.0
    assert percentiles({1.0: 0.0, float("inf"): 5.0}).p99 == 1.0  # at least that


def test_a_page_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MAX_SAMPLES", 10)
    with pytest.raises(NotUnderstoodError, match="more than 10 samples"):
        Page.read("a 1\n" * 11)
