"""The command as a process: what it loads, how it ends, and what it starts."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from infer_console.cli.output import print_json, print_line, print_table
from infer_console.cli.serve import build_settings
from support.processes import children, wait_gone
from support.server import EngineServer, short_directory
from support.tiny_model import write_tiny_gguf

COMMAND = (sys.executable, "-c", "import sys; from infer_console.cli import main; sys.exit(main())")
TIMEOUT_S = 120

LOADED = """
import sys
from infer_console.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
heavy = ("torch", "textual", "httpx2", "starlette", "numpy", "rich")
print("loaded:", *(name for name in heavy if name in sys.modules))
"""


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "INFER_CONSOLE_CONNECT": "", **environment}
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=TIMEOUT_S, env=env)


def loaded(*words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()[1:]


def test_the_version_and_the_help_load_nothing_heavy() -> None:
    assert loaded("--version") == []
    assert loaded("drain", "--help") == []


def test_looking_at_a_server_loads_neither_the_engine_nor_the_screen() -> None:
    assert set(loaded("status", "--connect", "unix:///nonexistent/c.sock")) <= {"httpx2", "rich"}


def test_the_version_is_one_line() -> None:
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("infer-console ")


def test_without_a_terminal_the_console_is_refused_with_a_hint() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "status --json" in done.stderr


def test_a_reader_that_leaves_is_no_error(engine: EngineServer) -> None:
    for words in (("status", "--json"), ("status", "--watch"), ("replicas",)):
        with subprocess.Popen(
            [*COMMAND, "--connect", engine.control_url, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.wait(TIMEOUT_S) == 141
            assert process.stderr.read() == b""


def test_ctrl_c_ends_a_watch_quietly(engine: EngineServer) -> None:
    with subprocess.Popen(
        [*COMMAND, "--connect", engine.control_url, "status", "--watch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # The suite itself may have been started in the background, where shells have SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert select.select([process.stdout], [], [], TIMEOUT_S)[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130
        assert process.stderr.read() == b""


def test_serve_becomes_the_engine_server_and_ends_with_its_signal() -> None:
    with short_directory() as directory:
        model = write_tiny_gguf(directory / "tiny.gguf")
        words = [
            "serve",
            "--control",
            f"unix://{directory}/c.sock",
            "--listen",
            "127.0.0.1:0",
            "--replicas",
            "1",
        ]
        words += ["--model", str(model), "--kv-blocks", "64", "--threads", "1", "--name", "spare"]
        # Nothing is compiled for fp32, which takes minutes where much else is done.
        words += ["--dtype", "fp32"]
        with (directory / "log").open("wb") as log:
            server = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=log)
        try:
            assert server.stdout is not None
            hello = json.loads(server.stdout.readline())
            assert hello["pid"] == server.pid
            assert run("wait", "--ready", "--connect", hello["control"]).returncode == 0
            status = json.loads(run("status", "--json", "--connect", hello["control"]).stdout)
            assert status["fleet"]["name"] == "spare"
            assert status["replicas"][0]["kv"]["total"] == 64
            family = [server.pid, *children(server.pid)]
            server.terminate()
            assert server.wait(TIMEOUT_S) == 0
            assert wait_gone(family) == []
        finally:
            server.kill()
            server.wait(TIMEOUT_S)
            if server.stdout is not None:
                server.stdout.close()


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--replicas", "-1", "--replicas: '-1' was given: Expected `int` >= 0"),
        (
            "--replicas",
            "0",
            "replicas is 0, which is for a server that others join: join_listen is not given",
        ),
        ("--max-running", "many", "--max-running: 'many' was given: Expected `int`"),
        ("--device", "tpu", "--device: 'tpu' was given: Invalid enum value"),
        ("--preempt-mode", "never", "--preempt-mode: 'never' was given: Invalid enum value"),
        ("--host-blocks", "-1", "--host-blocks: '-1' was given: Expected `int` >= 0"),
        ("--prefix-cache", "maybe", "--prefix-cache: invalid choice: 'maybe' (choose from "),
        ("--name", "", "--name: '' was given: Expected `str` of length >= 1"),
    ],
)
def test_serve_names_the_option_that_does_not_fit(option: str, value: str, says: str) -> None:
    done = run("serve", option, value)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_serve_has_a_default_control_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    settings = build_settings({"kv_blocks": "9", "replicas": None})
    assert settings.control == "unix:///run/user/7/infer-console/default.sock"
    assert settings.listen == "127.0.0.1:8000"
    assert (settings.replicas, settings.replica.kv_blocks) == (2, 9)


def test_the_kv_memorys_options_reach_the_replicas() -> None:
    replica = build_settings({"prefix_cache": "off", "host_blocks": "0", "preempt_mode": "swap"}).replica
    assert (replica.prefix_cache, replica.host_blocks, replica.preempt_mode) == (False, 0, "swap")
    assert build_settings({"prefix_cache": "on"}).replica.prefix_cache is True
    assert build_settings({}).replica.prefix_cache is True


HOSTILE = "\x1b]52;c;aGk=\x07 \x9b31m \u202e \ud83d [/red]"


def test_what_users_wrote_cannot_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(HOSTILE)
    print_table(["A", "B>"], [[HOSTILE, 1], ["x", 22]])
    print_json({"text": HOSTILE})
    out = capsys.readouterr().out
    assert out.isprintable() or set(filter(lambda each: not each.isprintable(), out)) == {"\n"}
    assert "\u202e" not in out
    assert json.loads(out.splitlines()[-1])["text"] == HOSTILE


def test_nothing_is_written_where_it_runs(tmp_path: Path) -> None:
    words = ["status", "--connect", f"unix://{tmp_path}/none.sock"]
    done = subprocess.run([*COMMAND, *words], cwd=tmp_path, capture_output=True, timeout=TIMEOUT_S)
    assert done.returncode == 3
    assert list(tmp_path.iterdir()) == []


def test_a_stdout_that_cannot_be_written_is_one_line(engine: EngineServer) -> None:
    words = [*COMMAND, "--connect", engine.control_url, "status"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 1
    assert done.stderr == "infer-console: cannot write to stdout: No space left on device\n"


def test_a_closed_stdout_is_one_line(engine: EngineServer) -> None:
    words = ["sh", "-c", '"$@" >&-', "sh", *COMMAND, "--connect", engine.control_url]
    for verb in (["status"], ["status", "--json"], []):
        done = subprocess.run([*words, *verb], stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 1
        assert done.stderr == "infer-console: stdout is closed: nowhere to write to\n"


def test_a_url_that_is_none_is_a_usage_error() -> None:
    done = run("--connect", "http://[::1", "status")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "--connect: 'http://[::1'" in done.stderr
