"""The distribution as a stranger installs it: the built wheel, without extras, in a bare venv."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from support.server import serving, short_directory
from support.terminal import Terminal

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.apart, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(ROOT)],
        check=True,
        timeout=800,
    )
    (built,) = out.glob("infer_console-*.whl")
    return built


def test_wheel_holds_both_packages_the_themes_and_the_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "infer_console/__init__.py" in names
    assert "infer_engine/protocol/__init__.py" in names
    assert any(name.startswith("infer_console/themes/") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with the base install only."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, with_pip=True)
    subprocess.run(
        [
            str(home / "bin/python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            str(wheel),
        ],
        check=True,
        timeout=800,
    )
    return home


def run(bare: Path, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(bare / "bin/infer-console"), *argv],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_base_install_has_no_torch_and_knows_its_version(bare: Path) -> None:
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is not None)"
    assert subprocess.run([str(bare / "bin/python"), "-c", probe], timeout=120).returncode == 0
    version = run(bare, "--version")
    assert version.returncode == 0
    assert version.stdout.split()[-1][0].isdigit()


def test_base_install_connects_without_the_engine(bare: Path, tmp_path: Path) -> None:
    nowhere = run(bare, "--connect", f"unix://{tmp_path}/none.sock", "status", "--json")
    assert nowhere.returncode == 3
    assert nowhere.stdout == ""
    assert "none.sock" in nowhere.stderr


def test_base_install_without_a_target_says_how_to_connect(bare: Path) -> None:
    with short_directory() as place:  # where no console of another test, or of the machine, has its engine
        alone = run(bare, "status", XDG_RUNTIME_DIR=str(place), INFER_CONSOLE_CONNECT="")
    assert alone.returncode in (2, 3)
    assert "--connect" in alone.stderr


def test_base_install_watches_an_engine_that_runs_elsewhere(bare: Path, tmp_path: Path) -> None:
    with serving(replicas=1) as server:
        status = run(bare, "--connect", server.control_url, "status", "--json")
        assert status.returncode == 0, status.stderr
        assert [replica["state"] for replica in json.loads(status.stdout)["replicas"]] == ["ready"]
        argv = [str(bare / "bin/infer-console"), "--connect", server.control_url]
        with Terminal(argv, columns=120, rows=36, env={"XDG_CONFIG_HOME": str(tmp_path)}) as terminal:
            terminal.wait_for(r"r0\s+ready")
            terminal.send("2")
            terminal.wait_for(r"ROSTER 0")
            terminal.send("q")
            assert terminal.wait_exit() == 0
