"""Verbs that look, on a server that is not ours."""

import pytest
from infer_console.cli import codes, main
from support.cli import Result, Run
from support.foreign_server import foreign_server, llamacpp_pages, vllm_pages


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> Result:
        try:
            code = main(words)
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        return Result(code, *capsys.readouterr())

    return run


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
        assert [row["id"] for row in listed] == ["task-298", "task-299", "task-296", "task-300"]
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
