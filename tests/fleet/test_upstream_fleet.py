"""Servers of somebody else as replicas of a fleet: everything real but the servers, which are fakes."""

import asyncio
import contextlib
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from infer_engine.fleet.generation import GenerationSpec, Refusal
from infer_engine.fleet.upstream import UpstreamError, upstream_fleet
from infer_engine.foreign.address import parse_address
from infer_engine.foreign.asking import Asking
from infer_engine.model.sampling import Sampling
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import ChangeLimits, Drain, Scale
from infer_engine.replica.upstream import tls
from infer_engine.replica.upstream.probe import Probe, Unready
from infer_engine.settings import ServerSettings, Upstream
from support.certificates import make_certificates, server_context
from support.fake_upstream import FakeUpstream, Kind, answer_to, fake_upstreams
from support.fleets import finished, spec, until
from support.upstream_fleet import CONTEXT, events, fake, fleet_of, ready
from support.upstream_fleet import tokenizer as tokenizer


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
async def test_tokens_come_back_as_each_server_tells_them(
    kind: Kind, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    server = fake(tokenizer, kind)
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)
        asked = spec(prompt_tokens=20, max_tokens=12)
        generation = fleet.submit(asked)
        await finished(generation)
        assert generation.emitted == answer_to(list(asked.prompt), 12)
        assert (generation.finish_reason, generation.error) == ("length", None)
        row = fleet.replica("r0")
        product = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp"}[kind]
        assert (row.upstream, row.foreign, row.pid, row.step) == (product, None, None, None)
        # vLLM keeps one block of its pool for nobody.
        assert row.kv.total == {"vllm": 63, "sglang": 64, "llamacpp": 4 * CONTEXT // 16}[kind]


async def test_what_kind_a_server_is_is_found_out_by_asking(tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = fake(tokenizer, "llamacpp")
    async with fake_upstreams(server):
        settings = ServerSettings(upstreams=(server.url.replace("llamacpp", "auto"),))
        fleet = upstream_fleet(settings, tokenizer, CONTEXT, environment={}, run_dir=tmp_path)
        await fleet.start()
        try:
            await ready(fleet, 1)
            assert fleet.replica("r0").upstream == "llama.cpp"
        finally:
            await fleet.stop()


async def test_streams_of_a_server_that_is_killed_go_on_at_the_other(
    tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (
        fake(tokenizer, "vllm", free_tokens=5),
        fake(tokenizer, "llamacpp", free_tokens=5, slots=8),
    )
    first.gate.clear()
    second.gate.clear()
    async with (
        fake_upstreams(first, second),
        fleet_of(tokenizer, first, second, run_dir=tmp_path) as (fleet, happened),
    ):
        await ready(fleet, 2)
        specs = [
            replace(spec(max_tokens=30), prompt=tuple(range(number, number + 20))) for number in range(8)
        ]
        generations = [fleet.submit(each) for each in specs]
        await until(lambda: all(len(each.emitted) == 5 for each in generations), "5 tokens each")
        there = [each for each in generations if each.replica == "r0"]
        assert there
        assert len(there) < 8
        first.kill()
        await until(lambda: all(each.replica == "r1" for each in generations), "all at the other")
        second.gate.set()
        await finished(*generations)
        for asked, generation in zip(specs, generations, strict=True):
            assert generation.emitted == answer_to(list(asked.prompt), 30)
            assert (generation.finish_reason, generation.error) == ("length", None)
        assert {each.moves for each in there} <= {1, 2}
        moves = events(happened, "move")
        assert {event.replica for event in moves} == {"r0"}
        assert {event.reason for event in moves} <= {"stream_broke", "replica_lost"}
        assert all(
            (event.message or "").startswith("the stream broke: ")
            for event in moves
            if event.reason == "stream_broke"
        )
        # What went on elsewhere was asked for with the tokens so far.
        assert sum(len(body["prompt"]) == 25 for body in second.generated()) == len(there)
        await until(lambda: fleet.replica("r0").state == "starting", "it is looked for")
        assert "replica r0 died: " in caplog.text
        assert "pid None" not in caplog.text
        await until(lambda: "ConnectError" in (fleet.replica("r0").error or ""), "nobody is there")
        gone = fleet.replica("r0")
        assert gone.was_ready
        assert gone.unready_s is not None
        first.gate.set()
        await first.start()
        await ready(fleet, 2)
        back = fleet.replica("r0")
        assert back.incarnation > 1
        assert (back.unready_s, back.error) == (None, None)


async def test_a_drain_moves_what_runs_and_closes_its_streams(tokenizer: Tokenizer, tmp_path: Path) -> None:
    first, second = fake(tokenizer, free_tokens=3), fake(tokenizer)
    first.gate.clear()
    second.gate.clear()
    async with (
        fake_upstreams(first, second),
        fleet_of(tokenizer, first, second, run_dir=tmp_path) as (fleet, _),
    ):
        await ready(fleet, 2)
        generations = [fleet.submit(spec(max_tokens=9)) for _ in range(4)]
        await until(lambda: all(len(e.emitted) == 3 for e in generations if e.replica == "r0"), "they run")
        fleet.draining.drain("r0", Drain(mode="migrate"))
        await until(lambda: all(each.replica == "r1" for each in generations), "all at the other")
        second.gate.set()
        await finished(*generations)
        assert all(each.emitted == answer_to(list(range(4)), 9) for each in generations)
        await until(lambda: fleet.replica("r0").state == "drained" and not first.running, "it is empty")


async def test_a_cancelled_request_is_one_whose_stream_is_closed(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    server = fake(tokenizer, free_tokens=2)
    server.gate.clear()
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)
        generation = fleet.submit(spec(max_tokens=50))
        await until(lambda: len(generation.emitted) == 2, "it runs")
        fleet.cancel(generation.id)
        await finished(generation)
        assert (generation.finish_reason, generation.error_code) == ("cancelled", "cancelled_by_operator")
        await until(lambda: server.running == 0, "the server has let go of it")
        assert fleet.replica("r0").kv.used == 0


async def test_what_a_server_says_is_in_use_keeps_others_waiting(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    server = fake(tokenizer, free_tokens=1, kv_used_ratio=0.89)
    server.gate.clear()
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)
        runs, waits = fleet.submit(spec(20, 9)), fleet.submit(spec(40, 9))
        await until(lambda: len(runs.emitted) == 1, "one runs")
        await until(lambda: any(row.waiting_reason == "headroom" for row in fleet.rows()), "one waits")
        assert waits.admitted_s is None
        assert len(server.generated()) == 1
        server.kv_used_ratio = 0.1
        await until(lambda: waits.admitted_s is not None, "there is room by the next look")
        server.gate.set()
        await finished(runs, waits)


async def test_choices_are_requests_of_their_own(tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = fake(tokenizer)
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)
        choices = fleet.submit_choices([spec(40, 9)] * 3)
        await finished(*choices)
        assert [each.emitted for each in choices] == [answer_to(list(range(40)), 9)] * 3
        assert fleet.replica("r0").kv.used == 0


async def test_a_seed_is_passed_on_to_a_server_that_takes_one(tokenizer: Tokenizer, tmp_path: Path) -> None:
    new, old = fake(tokenizer, "sglang"), fake(tokenizer, "sglang", seeds=False)
    async with fake_upstreams(new, old), fleet_of(tokenizer, new, old, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 2)
        asked = replace(spec(max_tokens=4), sampling=Sampling(temperature=0.0, seed=-7))
        generations = [fleet.submit(asked) for _ in range(4)]
        await finished(*generations)
        assert {each.finish_reason for each in generations} == {"length"}
        parameters = [[body["sampling_params"] for body in each.generated()] for each in (new, old)]
        asked_for = [[each for each in some if each["max_new_tokens"] == 4] for some in parameters]
        assert [{each.get("sampling_seed") for each in some} for some in asked_for] == [{2**63 - 7}, {None}]


async def test_a_busy_server_is_asked_again_when_it_says_so(tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = fake(tokenizer, failures=[(429, {"retry-after": "0"}), (503, {})])
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)
        generation = fleet.submit(spec(max_tokens=4))
        await finished(generation)
        assert generation.emitted == answer_to(list(range(4)), 4)
        assert len(server.generated()) == 3
        assert fleet.replica("r0").incarnation == 1


async def test_a_request_that_is_refused_ends_and_nothing_else(tokenizer: Tokenizer, tmp_path: Path) -> None:
    why = "k3y-of-ours may not: \x1b]0;too\nlong\u202e " + "x" * 9000
    server = fake(tokenizer, failures=[(400, {})], why=why, key="k3y-of-ours")
    async with (
        fake_upstreams(server),
        fleet_of(
            tokenizer, server, run_dir=tmp_path, environment={"INFER_UPSTREAM_TOKEN": "k3y-of-ours"}
        ) as (fleet, happened),
    ):
        await ready(fleet, 1)
        bad = fleet.submit(spec(max_tokens=4))
        await finished(bad)
        assert (bad.finish_reason, bad.error_code) == ("error", "upstream_refused")
        ours, _, theirs = (bad.error or "").partition(": ")
        assert ours == "the server behind the gateway would not serve the request"
        assert theirs.startswith("… may not: ·]0;too long· xxx")
        assert len(theirs) < 200
        # It may quote the request, which is nobody's but its client's.
        assert [event.message for event in events(happened, "finish")] == [ours]
        good = fleet.submit(spec(max_tokens=4))
        await finished(good)
        assert good.finish_reason == "length"
        assert fleet.replica("r0").incarnation == 1


async def test_what_fails_at_one_server_is_tried_at_another_a_few_times(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    server = fake(tokenizer, failures=[(500, {})] * 2)
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, happened):
        await ready(fleet, 1)
        again = fleet.submit(spec(max_tokens=4))
        await finished(again)
        assert again.finish_reason == "length"
        assert [event.reason for event in events(happened, "move")] == ["stream_broke"] * 2
        assert len(server.generated()) == 3
        server.failures = [(500, {})] * 9
        poison = fleet.submit(spec(max_tokens=4))
        await finished(poison)
        assert (poison.finish_reason, poison.error_code) == ("error", "upstream_failed")
        assert len(server.failures) == 5


async def test_a_server_of_another_vocabulary_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = FakeUpstream("vllm", lambda text: [7, *tokenizer.encode(text)])
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await until(lambda: fleet.replica("r0").state == "failed", "it is refused")
        assert "other tokens than ours: number 0 is 7" in (fleet.replica("r0").error or "")
        with pytest.raises(Refusal):
            fleet.submit(spec())


async def test_a_server_that_cuts_text_otherwise_will_do(tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = FakeUpstream("vllm", lambda text: _by_bytes(tokenizer, text))
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)


def _by_bytes(tokenizer: Tokenizer, text: str) -> list[int]:
    """Of the same vocabulary, with no merges."""
    plain = {each: id for id, each in enumerate(tokenizer.token_bytes) if len(each) == 1}
    cut: list[int] = []
    for id in tokenizer.encode(text, allow_special=True):
        special = id in tokenizer.special_ids.values()
        cut += [id] if special else [plain[bytes([each])] for each in tokenizer.token_bytes[id]]
    return cut


async def test_a_key_goes_along_or_the_server_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = fake(tokenizer, key="s3cret")
    other = fake(tokenizer, key="s3cret")
    async with fake_upstreams(server, other):
        urls = (server.url, other.url.replace("vllm", "auto"))
        settings = ServerSettings(upstreams=urls)
        fleet = upstream_fleet(settings, tokenizer, CONTEXT, environment={}, run_dir=tmp_path / "a")
        await fleet.start()
        try:
            for name in ("r0", "r1"):
                await until(lambda: fleet.replica(name).state == "failed", "it is refused")  # noqa: B023
                assert "INFER_UPSTREAM_TOKEN" in (fleet.replica(name).error or "")
        finally:
            await fleet.stop()
        key = {"INFER_UPSTREAM_TOKEN": "s3cret"}
        async with fleet_of(tokenizer, server, run_dir=tmp_path / "b", environment=key) as (fleet, _):
            await ready(fleet, 1)
            generation = fleet.submit(spec())
            await finished(generation)
            assert generation.finish_reason == "length"


async def test_over_https_a_server_proves_itself_by_its_name(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "trusted", ssl.create_default_context)  # and not as it was read before
    certificates, names = make_certificates(tmp_path), set[str | None]()
    server = fake(tokenizer, tls=server_context(certificates, names))
    async with fake_upstreams(server):
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
        probe = Probe(parse_address(server.url), None, tokenizer)
        with pytest.raises(Unready, match="CERTIFICATE_VERIFY_FAILED"):
            await probe.look()
        await probe.aclose()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
        async with fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
            await ready(fleet, 1)
            generation = fleet.submit(spec(max_tokens=4))
            await finished(generation)
            assert generation.emitted == answer_to(list(range(4)), 4)
    assert names == {"localhost"}


async def test_a_server_that_hangs_loses_its_requests_to_another(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    hangs, lives = fake(tokenizer, free_tokens=2), fake(tokenizer, free_tokens=2)
    hangs.gate.clear()
    lives.gate.clear()
    async with (
        fake_upstreams(hangs, lives),
        fleet_of(tokenizer, hangs, lives, run_dir=tmp_path, upstream_stall_s=1.5) as (fleet, _),
    ):
        await ready(fleet, 2)
        generations = [fleet.submit(spec(max_tokens=6)) for _ in range(2)]
        await until(lambda: all(len(each.emitted) == 2 for each in generations), "they run")
        hangs.answering.clear()
        lives.gate.set()
        await finished(*generations)
        assert all(each.emitted == answer_to(list(range(4)), 6) for each in generations)
        await until(lambda: fleet.replica("r0").state in ("starting", "failed"), "it is given up")
        hangs.answering.set()


async def test_a_server_that_began_anew_while_idle_is_another_life(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    server = fake(tokenizer)
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, happened):
        await ready(fleet, 1)
        await finished(fleet.submit(spec(max_tokens=4)))
        await until(lambda: server.asked[-1][0] != "/v1/completions", "it is looked at")
        looks = len(server.asked)
        await until(lambda: len(server.asked) > looks + 8, "twice")
        server.counted = 0
        await until(lambda: fleet.replica("r0").incarnation == 2, "another life")
        await ready(fleet, 1)
        assert any("restarted" in (event.message or "") for event in events(happened, "replica"))


@pytest.mark.parametrize("killed", [False, True])
async def test_a_server_with_another_model_is_another_life_and_that_is_said(
    killed: bool, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    server = fake(tokenizer, model="small")
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, happened):
        await ready(fleet, 1)
        await finished(fleet.submit(spec(max_tokens=4)))
        first = fleet.replica("r0").incarnation
        if killed:
            server.kill()
            await until(lambda: fleet.replica("r0").state == "starting", "it is gone")
        server.model = "large"
        if killed:
            await server.start()
        await until(lambda: fleet.replica("r0").incarnation > first, "another life")
        await ready(fleet, 1)
        told = [event.message or "" for event in events(happened, "replica")]
        assert len([each for each in told if "it serves another model now: large" in each]) == 1
        await finished(fleet.submit(spec(max_tokens=4)))
        assert [body["model"] for body in server.generated()][-1] == "large"


async def test_what_a_server_says_nonsense_about_is_not_believed(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    server = fake(tokenizer)
    server.metrics_extra = (
        'vllm:num_preemptions_total{engine="0"} NaN\nvllm:prompt_tokens_total{engine="0"} 5\n'
    )
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)
        await finished(fleet.submit(spec(max_tokens=4)))
        server.metrics_extra = 'vllm:prompt_tokens_total{engine="0"} 1\n'
        for lie in (-3.0, 1.7):
            server.kv_used_ratio = lie
            looks = len(server.asked)
            await until(lambda looks=looks: len(server.asked) > looks + 8, "it is looked at")
            generations = [fleet.submit(spec(max_tokens=4)) for _ in range(2)]
            for generation in generations:
                await finished(generation)
                assert generation.finish_reason == "length"
        assert fleet.replica("r0").incarnation == 1


async def test_parameters_that_no_server_takes_are_refused_by_name(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    both, one = fake(tokenizer, "sglang"), fake(tokenizer, "llamacpp")
    async with fake_upstreams(both, one), fleet_of(tokenizer, both, one, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 2)

        def with_(**sampling: Any) -> GenerationSpec:
            return replace(spec(max_tokens=4), sampling=Sampling(temperature=0.0, **sampling))

        with pytest.raises(Refusal) as refused:
            fleet.submit(with_(logprobs=2))
        problem = refused.value.problem
        assert (problem.status, problem.field) == (400, "logprobs")
        assert "SGLang behind this gateway" in problem.detail
        able = [fleet.submit(with_(min_tokens=2)) for _ in range(3)]
        await finished(*able)
        assert [each.replica for each in able] == ["r0"] * 3
        assert not one.generated()
        assert {body["sampling_params"]["min_new_tokens"] for body in both.generated()} == {2}


async def test_how_many_there_are_is_not_ours_to_say(tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = fake(tokenizer)
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        with pytest.raises(Refusal) as refused:
            fleet.resizing.predict(Scale(replicas=2))
        assert (refused.value.problem.status, refused.value.problem.code) == (409, "not_ours")


def told(*tokens: int, finish: str | None = None, logprobs: str = "null") -> bytes:
    ending = "null" if finish is None else f'"{finish}"'
    return (
        f'data: {{"choices":[{{"text":"x","token_ids":{list(tokens)},"finish_reason":{ending},'
        f'"logprobs":{logprobs}}}]}}\n\n'
    ).encode()


async def test_tokens_before_a_break_are_kept_and_those_after_the_end_are_nobodys(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    server = fake(tokenizer, scripts=[told(41) + told(42), told(43, finish="length") + told(44)])
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)
        generation = fleet.submit(spec(prompt_tokens=8, max_tokens=6))
        await finished(generation)
        assert (generation.emitted, generation.finish_reason) == ([41, 42, 43], "length")
        assert [body["max_tokens"] for body in server.generated()] == [6, 4]


async def test_numbers_that_no_server_should_tell_end_no_request_without_a_word(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    huge = "1" + "0" * 400
    logprobs = f'{{"token_logprobs":[{huge}],"top_logprobs":[{{"token_id:5":{huge}}}]}}'
    strange = '{"token_logprobs":[-1.0],"top_logprobs":[{"token_id:²":-1.0,"token_id:7":-2.0}]}'
    server = fake(
        tokenizer,
        scripts=[
            told(41, logprobs=logprobs) + told(42, finish="length", logprobs=strange),
            told(41) + told(2**30),
        ],
    )
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)
        asked = spec(prompt_tokens=8, max_tokens=6)
        asked = replace(asked, sampling=Sampling(temperature=0.0, logprobs=2))
        generation = fleet.submit(asked)
        await finished(generation)
        assert generation.emitted == [41, 42]
        assert {at: each.top_ids for at, each in generation.logprobs.items()} == {1: [7]}
        generation = fleet.submit(asked)
        await finished(generation)
        assert (generation.emitted, generation.error_code) == ([41], "unknown_token")


@pytest.mark.parametrize(
    ("trial", "why"),
    [
        (b"<html>hello</html>", "no stream of tokens"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "is no JSON"),
        (told(41, finish="strange"), "it ended a request as 'strange'"),
        (told(2**30, finish="length"), "token 1073741824, of"),
    ],
)
async def test_what_does_not_generate_tokens_of_ours_is_not_taken_on(
    trial: bytes, why: str, tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = fake(tokenizer, trials=[trial] * 9)
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await until(lambda: why in (fleet.replica("r0").error or ""), why)
        assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.parametrize(
    ("kind", "trial", "how"),
    [
        ("vllm", b'{"choices":[{"text":" Hi","finish_reason":null}]}', "since 0.10.2 (return_token_ids)"),
        ("sglang", b'{"text":" Hi","meta_info":{"completion_tokens":1}}', "(output_ids)"),
        ("llamacpp", b'{"content":" Hi","stop":false}', "(return_tokens)"),
    ],
)
async def test_a_server_that_tells_text_only_is_refused_with_what_it_takes(
    kind: Kind, trial: bytes, how: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    server = fake(tokenizer, kind, trials=[b"data: " + trial + b"\n\n"] * 9)
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await until(lambda: fleet.replica("r0").state == "failed", "it will not do")
        error = fleet.replica("r0").error or ""
        assert "it tells text only, and no token ids" in error
        assert how in error


async def test_compressed_answers_nobody_asked_for_are_not_unpacked(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    server = fake(tokenizer, page_headers={"content-encoding": "gzip"})
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await until(lambda: fleet.replica("r0").state == "failed", "it is refused")
        assert "is answered as gzip" in (fleet.replica("r0").error or "")


async def test_an_answer_that_drips_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while not reader.at_eof():
            writer.write(b"#")
            with contextlib.suppress(TimeoutError, OSError):
                await asyncio.wait_for(reader.read(1024), 0.02)
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        gone.set()

    monkeypatch.setattr("infer_engine.foreign.asking.WHOLE_ANSWER_S", 0.2)
    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    asking = Asking(f"http://127.0.0.1:{port}", None, httpx2.AsyncHTTPTransport())
    try:
        with pytest.raises(httpx2.ReadTimeout, match="not told within"):
            await asking.get("/metrics")
    finally:
        await asking.aclose()
        await asyncio.wait_for(gone.wait(), 30.0)
        server.close()
        await server.wait_closed()


async def test_a_gateway_of_ours_is_no_upstream(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(UpstreamError, match="itself"):
        upstream_fleet(
            ServerSettings(upstreams=("vllm+http://localhost:8123",)),
            tokenizer,
            CONTEXT,
            own_ports=frozenset({8123}),
            environment={},
        )
    server = fake(tokenizer, metrics_extra="infer_replica_state 1\n")
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await until(lambda: fleet.replica("r0").state == "failed", "it is refused")
        assert "gateway" in (fleet.replica("r0").error or "")


def test_a_key_is_not_sent_where_others_read_it(tokenizer: Tokenizer) -> None:
    settings = ServerSettings(upstreams=("vllm+http://elsewhere:8000",))
    with pytest.raises(UpstreamError, match="token_over_http"):
        upstream_fleet(settings, tokenizer, CONTEXT, environment={"INFER_UPSTREAM_TOKEN": "s3cret"})
    own = Upstream(url="vllm+http://elsewhere:8000", token_env="MISSING")
    with pytest.raises(UpstreamError, match="MISSING is not set"):
        upstream_fleet(ServerSettings(upstreams=(own,)), tokenizer, CONTEXT, environment={})


async def test_no_more_are_sent_than_a_server_says_that_it_runs(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """More would wait inside it; what was wanted of it when it had more slots is cut to those it has."""
    server = fake(tokenizer, "llamacpp")
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)
        beyond = ChangeLimits(limits={"max_running": 6})
        with pytest.raises(Refusal) as predicted:
            fleet.limits.predict(beyond)
        assert "max_running: 6 given, 1 to 4 allowed (llama.cpp runs 4 at once" in str(predicted.value)
        with pytest.raises(Refusal, match="max_running"):
            await fleet.limits.change(beyond)
        await fleet.limits.change(ChangeLimits(limits={"max_running": 3}))
        assert fleet.limits.now().replicas["r0"]["max_running"] == 3
        answer = await fleet.limits.handles["r0"].set_limits({"max_running": 9, "max_passes": 2}, 15.0)
        assert (answer.error, answer.new["max_running"], answer.new["max_passes"]) == (None, 4, 2)


async def test_who_would_wait_inside_a_server_waits_before_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = fake(tokenizer, "vllm", free_tokens=1, batch=2)
    server.gate.clear()
    async with fake_upstreams(server), fleet_of(tokenizer, server, run_dir=tmp_path) as (fleet, _):
        await ready(fleet, 1)
        first = [fleet.submit(spec(max_tokens=4)) for _ in range(5)]
        await until(lambda: fleet.replica("r0").max_running == 2, "what it runs at once is seen")
        later = [fleet.submit(spec(max_tokens=4)) for _ in range(3)]
        await until(
            lambda: fleet.replica("r0").waiting_reasons.get("slots") == 3, "those that came later wait here"
        )
        assert len(server.generated()) == 5
        assert fleet.replica("r0").limits["max_running"] > 2
        server.gate.set()
        for each in (*first, *later):
            await finished(each)
            assert (each.finish_reason, each.error) == ("length", None)
