"""Verbs over recordings, and recording into a directory until told to end."""

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from infer_console.past.replayed import ReplayedRecording
from infer_console.recording import open_recording
from support.cli import Run
from support.eventually import eventually
from support.incident import RECORDING
from support.server import EngineServer

PROGRAM = "import sys; from infer_console.cli.entry import main; sys.exit(main())"


def test_a_moment_of_a_recording_as_a_status_document(run: Run) -> None:
    early = run("replay", str(RECORDING), "--json", "--at", "now-36s").document
    late = run("replay", str(RECORDING), "--json").document
    states = [{each["id"]: each["state"] for each in document["replicas"]} for document in (early, late)]
    assert [state["r1"] for state in states] == ["ready", "drained"]
    assert early["alarms"] == []
    assert any(alarm["severity"] == "critical" for alarm in late["alarms"])


def test_what_cannot_be_replayed_is_said(run: Run, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.icr"
    wrong.write_bytes(b"no recording")
    assert "no Zstandard data" in run("replay", str(wrong), "--json").err
    assert "cannot read" in run("replay", str(tmp_path / "none.icr"), "--json").err
    no_terminal = run("replay", str(tmp_path / "none.icr"))
    assert (no_terminal.code, "cannot read" in no_terminal.err) == (1, True)
    assert "needs a terminal" in run("replay", str(RECORDING)).err
    assert run("replay", str(RECORDING), "--json", "--at", "yesterday").code == 2
    assert "not in the recording" in run("replay", str(RECORDING), "--json", "--at", "now-2h").err


def test_what_differs_between_two_replicas_and_two_moments(run: Run) -> None:
    replicas = run("diff", "r0", "r1", "--recording", str(RECORDING))
    assert replicas.code == 0
    assert any("state" in line and "drained" in line for line in replicas.out.splitlines())
    moments = run("diff", "now-36s", "now", "--recording", str(RECORDING))
    assert "ready replicas" in moments.out
    document = json.loads(run("diff", "r0", "r1", "--recording", str(RECORDING), "--json").out)
    assert (document["a"][:2], document["b"][:2]) == ("r0", "r1")
    assert document["differ"]
    assert all(each["a"] != each["b"] for each in document["differ"])
    same = run("diff", "now", "now", "--recording", str(RECORDING))
    assert "nothing differs" in same.out
    assert "there is no replica r9" in run("diff", "r9", "now", "--recording", str(RECORDING)).err


def test_now_and_then_of_a_running_server(run: Run) -> None:
    result = eventually(lambda: (found := run("diff", "r0", "r1")).code == 0 and found)
    assert "r0 " in result.out


def test_a_part_of_a_recording_is_a_recording(run: Run, tmp_path: Path) -> None:
    part = tmp_path / "part.icr"
    result = run("export", str(RECORDING), str(part), "--span", "now-10s..now-2s")
    assert (result.code, result.out) == (0, "")
    recording = ReplayedRecording(part)
    recording.start()
    try:
        assert recording.done.wait(60)
        span = recording.timeline.span()
        assert span is not None
        assert 7.0 <= span[1] - span[0] <= 8.01
        assert recording.header.redacted
    finally:
        recording.stop()
    assert run("export", str(RECORDING), str(part)).code == 1  # it is there already
    cut = tmp_path / "cut.icr"
    cut.write_bytes(RECORDING.read_bytes()[:-100])
    assert "its end is missing" in run("export", str(cut), str(tmp_path / "y")).err
    assert "its end is missing" in run("diff", "now", "now", "--recording", str(cut)).err
    assert run("export", str(RECORDING), str(tmp_path / "x"), "--span", "now..-1m").code == 2
    for made in (part, tmp_path / "y"):
        assert made.stat().st_mode & 0o777 == 0o600, "who was served is not for everybody"


def test_damage_is_told_from_an_end_that_is_missing_and_a_gap_from_nothing(run: Run, tmp_path: Path) -> None:
    before, after = tmp_path / "before.icr", tmp_path / "after.icr"
    assert run("export", str(RECORDING), str(before), "--span", "now-36s..now-30s").code == 0
    assert run("export", str(RECORDING), str(after), "--span", "now-10s..now").code == 0
    content = before.read_bytes() + after.read_bytes()
    with_a_gap, damaged = tmp_path / "gap.icr", tmp_path / "damaged.icr"
    with_a_gap.write_bytes(content)
    told = run("diff", "now-20s", "now", "--recording", str(with_a_gap))
    assert "nothing was told for 10s by then" in told.out
    document = json.loads(run("diff", "now-20s", "now", "--recording", str(with_a_gap), "--json").out)
    assert document["a_silent_s"] == pytest.approx(10.0, abs=0.1)
    assert document["b_silent_s"] is None
    within = len(before.read_bytes()) + len(after.read_bytes()) // 2
    damaged.write_bytes(content[:within] + bytes(50) + content[within + 50 :])
    assert "damaged: the rest is missing" in run("diff", "now", "now", "--recording", str(damaged)).err


@contextmanager
def recording_for_days(
    engine: EngineServer, directory: Path, *more: str, program: str = PROGRAM
) -> Generator[subprocess.Popen[str]]:
    words = ["--connect", engine.control_url, "record", f"{directory}/", *more]
    recorder = subprocess.Popen([sys.executable, "-c", program, *words], stderr=subprocess.PIPE, text=True)
    try:
        yield recorder
    finally:
        if recorder.poll() is None:
            recorder.kill()
            recorder.communicate()


def test_recording_for_days_follows_on_in_files_and_ends_tidily(engine: EngineServer, tmp_path: Path) -> None:
    with recording_for_days(engine, tmp_path, "--rotate", "1s", "--max-mib", "64") as recorder:
        eventually(lambda: len(list(tmp_path.glob("*.icr"))) >= 2)
        recorder.send_signal(signal.SIGTERM)
        _, said = recorder.communicate(timeout=120)
    assert recorder.returncode == 0, said
    assert "nothing lost" in said
    ends = [-1.0]
    for path in sorted(tmp_path.glob("*.icr"), key=lambda path: path.stat().st_mtime):
        file, reader = open_recording(path)
        with file:
            ats = [envelope.at for envelope in reader.envelopes()]
        assert not reader.is_truncated
        assert ats[0] >= ends[-1]
        ends.append(ats[-1])
    again = subprocess.run(
        [sys.executable, "-c", PROGRAM, "record", f"{tmp_path}/", "--last", "1m"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert again.returncode == 2


def test_recording_onto_a_disk_that_takes_no_more_ends_with_an_error(
    engine: EngineServer, tmp_path: Path
) -> None:
    """Files that may not grow stand for the full disk."""
    program = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048)); {PROGRAM}"
    with recording_for_days(engine, tmp_path, program=program) as recorder:
        assert recorder.stderr is not None
        said = ""
        while "cannot write" not in said and (line := recorder.stderr.readline()):
            said += line
        recorder.send_signal(signal.SIGTERM)
        said += recorder.communicate(timeout=120)[1]
    assert recorder.returncode == 1, said
    assert "File too large; trying again" in said
    assert "messages could not be written" in said
