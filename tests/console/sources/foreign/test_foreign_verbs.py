"""Verbs that look, on a server that is not ours."""

from pathlib import Path

import pytest
from infer_console.cli import codes
from support.cli import Run, runner
from support.foreign_server import foreign_server, llamacpp_pages, vllm_pages


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_status_and_replicas(run: Run) -> None:
    with foreign_server(vllm_pages("busy")) as server:
        found = run("--connect", f"auto+{server.url}", "status", "--json")
        assert found.code == codes.OK
        (engine,) = found.document["replicas"]
        assert (engine["id"], engine["running"], engine["waiting"], engine["foreign"]) == ("e0", 4, 1, "vLLM")
        assert engine["kv"] == {"block_size": 128, "total": 181, "used": 4} | {
            name: None for name in engine["kv"] if name not in ("block_size", "total", "used")
        }
        assert found.document["totals"]["tokens_per_s"] == 0.0  # two looks at the same page
        assert found.document["totals"]["ttft_s"]["p50"] is None
        assert "e0" in run("--connect", f"vllm+{server.url}", "replicas").out


def test_wait_until_ready(run: Run) -> None:
    with foreign_server(llamacpp_pages("busy")) as server:
        assert run("--connect", f"llamacpp+{server.url}", "wait", "--ready", "--timeout", "20s").code == 0
        server.statuses = dict.fromkeys(server.pages, 503)
        late = run("--connect", f"llamacpp+{server.url}", "wait", "--ready", "--timeout", "0s")
        assert late.code == codes.TIMED_OUT
        assert "e0 starting" in late.err


def test_requests_are_told_where_the_server_tells_them(run: Run) -> None:
    with foreign_server(llamacpp_pages("busy")) as server:
        listed = run("--connect", f"llamacpp+{server.url}", "requests", "--json").document["requests"]
        assert [row["id"] for row in listed] == ["task-8", "task-6", "task-5", "task-4"]
    with foreign_server(vllm_pages("busy")) as server:
        refused = run("--connect", f"vllm+{server.url}", "requests")
        assert refused.code == codes.ERROR
        assert "vLLM does not tell its requests" in refused.err


@pytest.mark.parametrize("words", [("drain", "e0", "--dry-run"), ("blocks", "e0"), ("cancel", "task-1")])
def test_what_acts_is_refused(run: Run, words: tuple[str, ...]) -> None:
    with foreign_server(vllm_pages("busy")) as server:
        refused = run("--connect", f"vllm+{server.url}", *words)
        assert refused.code != codes.OK
        assert "can only be watched" in refused.err
        assert all(line.startswith("GET ") for line in server.asked)


def test_what_is_refused_comes_with_what_can_do_it(run: Run, tmp_path: Path) -> None:
    with foreign_server(vllm_pages("busy")) as server:
        url, file = f"vllm+{server.url}", tmp_path / "f.rec"
        for words in (("history",), ("timeline", "task-1"), ("drain", "e0", "--dry-run")):
            assert f"infer-console serve --upstream {url} [watched_only]" in run("--connect", url, *words).err
        last = run("--connect", url, "record", str(file), "--last", "1m")
        assert last.code == codes.ERROR
        assert "no flight recorder" in last.err
        assert "--duration 10m or into DIR/" in last.err
        assert not file.exists()
        assert run("--connect", url, "record", str(file), "--duration", "0.2s").code == codes.OK
        assert file.stat().st_size


def test_a_server_that_is_not_ours_is_said_to_be_none(run: Run) -> None:
    with foreign_server(vllm_pages("busy")) as server:
        found = run("--connect", server.url, "status")
        assert found.code == codes.ERROR
        assert f"{server.url} does not look like an infer-console server" in found.err
        assert f"auto+{server.url} watches it if it is vLLM" in found.err


def test_our_own_gateway_is_recognised(run: Run) -> None:
    pages = vllm_pages("busy")
    pages["/metrics"] += b"infer_moves_total 0\n"
    with foreign_server(pages) as server:
        url = f"auto+{server.url}"
        status = run("--connect", url, "status", "--json").document
        assert status["replicas"][0]["foreign"] == "infer-console gateway"
        assert status["fleet"]["version"].startswith("infer-console gateway")
        assert "--connect unix://" in run("--connect", url, "status").err
        assert "--connect unix://" in run("--connect", url, "events").out
        assert "--connect unix://" in run("--connect", url, "requests").err
        assert "--connect unix://" in run("--connect", url, "history").err
