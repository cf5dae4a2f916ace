"""The console's own engine: it starts, says how it is doing, and leaves nothing behind, however the console
ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from infer_console.connect import find_embedded
from infer_console.embedded import (
    EmbeddedEngine,
    EmbeddedError,
    default_settings,
    fetch_model,
    remove_stale_directories,
)
from infer_engine.settings import DEFAULT_MODEL
from support.eventually import eventually
from support.processes import alive, children, started_here, wait_gone
from support.server import short_directory
from support.tiny_model import write_tiny_gguf


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    with short_directory() as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
        monkeypatch.setenv("INFER_CONSOLE_CACHE", str(path / "cache"))
        yield path


def tiny(directory: Path) -> dict[str, Any]:
    model = write_tiny_gguf(directory / "tiny.gguf")
    return {"replicas": 1, "replica": {"model": str(model), "kv_blocks": 64, "threads": 1}}


def private_directories(directory: Path) -> list[Path]:
    return list(directory.glob("infer-console-*"))


def test_it_listens_on_a_private_socket_and_leaves_nothing(directory: Path) -> None:
    engine = EmbeddedEngine(tiny(directory))
    with engine:
        assert engine.status().phase == "starting"
        eventually(lambda: engine.status().phase == "listening")
        assert engine.target.socket is not None
        assert Path(engine.target.socket).parent.stat().st_mode & 0o777 == 0o700
        found = find_embedded()
        assert found is not None
        assert found.socket == engine.target.socket
        assert engine.gateway_url is not None
        assert engine.gateway_url.startswith("http://127.0.0.1:")
        with httpx2.Client(
            transport=httpx2.HTTPTransport(uds=engine.target.socket), base_url="http://localhost"
        ) as control:
            assert control.get("/control/v1/hello").status_code == 200
        assert engine.pid is not None
        family = [engine.pid, *eventually(lambda: children(engine.pid or 0))]
    assert wait_gone(family) == []
    assert private_directories(directory) == []
    engine.stop()  # a second time does nothing


def test_one_that_dies_says_why_and_keeps_its_log(directory: Path) -> None:
    settings = tiny(directory)
    settings["replica"]["model"] = str(directory / "no-such.gguf")
    engine = EmbeddedEngine(settings)
    engine.start()
    try:
        eventually(lambda: engine.status().phase == "ended")
        message = engine.status().message
        assert "exit 1" in message
        assert "no-such.gguf" in message
        log = engine.log_path
        assert str(log) in message
    finally:
        engine.stop()
    assert log.exists()


def test_one_that_was_stopped_while_it_started_is_gone(directory: Path) -> None:
    engine = EmbeddedEngine(tiny(directory))
    engine.start()
    pid = engine.pid
    engine.stop()
    assert pid is not None
    assert not alive(pid)
    assert private_directories(directory) == []


CONSOLE = """
import json, sys, time
from infer_console.embedded import EmbeddedEngine
with EmbeddedEngine(json.loads(sys.argv[1])) as engine:
    while engine.status().phase != "listening":
        time.sleep(0.02)
    print(engine.pid, flush=True)
    time.sleep(60)
"""


def test_a_killed_console_leaves_no_engine(directory: Path) -> None:
    command = [sys.executable, "-c", CONSOLE, json.dumps(tiny(directory))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        pid = int(console.stdout.readline())
        family = [pid, *eventually(lambda: children(pid))]
        os.kill(console.pid, signal.SIGKILL)
        console.wait(60)
        assert wait_gone(family) == []


def test_while_the_model_is_looked_for_something_else_is_done(directory: Path) -> None:
    others = set(started_here())
    looking: set[int] = set()
    here = str(write_tiny_gguf(directory / "tiny.gguf"))
    fetch_model(here, lambda: looking.update(set(started_here()) - others))
    assert looking
    with pytest.raises(EmbeddedError, match="could not be fetched"):
        fetch_model(str(directory / "nothing.gguf"))


def test_who_is_told_to_end_leaves_no_fetching(directory: Path) -> None:
    others = set(started_here())
    looking: set[int] = set()

    def told() -> None:
        looking.update(set(started_here()) - others)
        raise SystemExit(143)

    with pytest.raises(SystemExit):
        fetch_model(str(directory / "nothing.gguf"), told)
    assert looking
    assert wait_gone(list(looking)) == []


def test_a_share_of_the_cores_is_left_to_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads in ((1, 1), (2, 1), (4, 1), (8, 3), (16, 7)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid, cores=cores: set(range(cores)))
        settings = default_settings({"INFER_CONSOLE_MODEL": "/models/mine.gguf"})
        assert settings == {"replicas": 2, "replica": {"model": "/models/mine.gguf", "threads": threads}}
        assert default_settings({})["replica"]["model"] == DEFAULT_MODEL


def test_what_an_engine_left_behind_is_removed_when_it_is_old(directory: Path) -> None:
    """A console that was killed early: its directory has no log, or nothing at all."""
    long_ago = time.time() - 3_600
    for name, files in (("empty", ()), ("locked", ("lock",)), ("full", ("what",)), ("new", ())):
        place = directory / f"infer-console-{name}"
        place.mkdir(mode=0o700)
        for file in files:
            (place / file).touch()
        if name != "new":
            os.utime(place, (long_ago, long_ago))
    (directory / "infer-console-link").symlink_to(directory / "infer-console-full")
    remove_stale_directories()
    left = {path.name for path in directory.iterdir() if path.name.startswith("infer-console-")}
    assert left == {"infer-console-full", "infer-console-new", "infer-console-link"}


def test_what_a_killed_console_left_goes_with_the_next_start(directory: Path) -> None:
    dead = directory / "infer-console-dead"
    failed = directory / "infer-console-failed"
    other = directory / "infer-console-other"
    for each in (dead, failed, other):
        each.mkdir(mode=0o700)
        (each / "engine.log").write_text("x")
    for each in (dead, failed):
        (each / "lock").touch()
    (failed / "failed").touch()
    with EmbeddedEngine(tiny(directory)) as engine:
        assert not dead.exists()
        assert failed.exists(), "somebody may want to read its log"
        assert other.exists(), "not one of ours"
        remove_stale_directories()
        assert engine.log_path.exists(), "its console lives"
    assert private_directories(directory) == [failed, other] or private_directories(directory) == [
        other,
        failed,
    ]
