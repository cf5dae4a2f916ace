"""bench: the words that are passed on, and those that are refused."""

import json
import subprocess
import sys

import pytest
from infer_console.cli import main


def run(*words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from infer_console.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, "bench", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_engine_names_its_parts() -> None:
    done = run("--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()][:3] == ["workload", "batching", "scheduler"]


def test_a_part_that_does_not_exist_is_named_with_those_that_do() -> None:
    done = run("engine", "--only", "nope", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--only: 'nope' is no part; allowed: workload, batching" in done.stderr


def test_options_of_the_engine_are_refused_for_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "console", "--only", "roster"]) == 2
    assert "--only roster: parts of bench console are paint, live" in capsys.readouterr().err
    assert main(["bench", "console", "--list"]) == 2
    assert "--list is for bench engine" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["bench", "--repeats", "0"])
    assert "from 1 to 100" in capsys.readouterr().err


def test_the_console_is_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from infer_console.ui.benchmark import paint

    monkeypatch.setattr(paint, "FRAMES", 1)
    monkeypatch.setattr(paint, "POOLS", (1_024,))
    assert main(["bench", "console", "--only", "paint", "--repeats", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    ratios = {each["measure"]: each["ratio"] for each in document["results"] if each["against"]}
    assert len(ratios) == 4
    assert all(ratio > 0 for ratio in ratios.values())
