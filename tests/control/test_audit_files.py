"""The audit on disk: one chain, whatever happens to the process or the disk in between."""

import json
import os
import stat
from pathlib import Path

import pytest
from infer_engine.audit_chain import Chain, ChainError
from infer_engine.control.audit_files import AuditDirError, AuditFiles, read_files
from infer_engine.telemetry.audit_metrics import AuditMetrics


def walk(directory: Path) -> int:
    chain = Chain()
    for record in read_files(list(directory.glob("audit-*.jsonl"))):
        chain.follow(record)
    return chain.number


def filled(directory: Path, count: int, **more: int) -> None:
    files = AuditFiles(directory, **more)
    for number in range(count):
        files.append([{"verb": "drain", "at": number}])
    files.close()


def test_the_chain_goes_on_through_files_and_restarts(tmp_path: Path) -> None:
    directory = tmp_path / "audit"
    filled(directory, 20, max_file_bytes=1_000)
    filled(directory, 20, max_file_bytes=1_000)
    assert walk(directory) == 40
    files = sorted(directory.glob("audit-*.jsonl"))
    assert len(files) > 5
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@pytest.mark.parametrize("left", [1, 10, 100])
def test_a_torn_end_is_cut_and_written_down(tmp_path: Path, left: int) -> None:
    filled(tmp_path, 5)
    file = next(tmp_path.glob("audit-*.jsonl"))
    content = file.read_bytes()
    file.write_bytes(content + content.splitlines(keepends=True)[0][:left])
    filled(tmp_path, 1)
    assert walk(tmp_path) == 7
    told = json.loads(file.read_bytes().splitlines()[5])
    assert (told["stage"], told["params"]["bytes"]) == ("recovered", left)


def test_a_file_of_nothing_but_a_torn_line_is_no_end(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    (tmp_path / "audit-000000000004.jsonl").write_bytes(b'{"number":4')
    filled(tmp_path, 1)
    assert walk(tmp_path) == 5


@pytest.mark.parametrize("what", ["changed", "taken out", "put in", "swapped", "garbage"])
def test_tampering_is_seen_where_it_happened(tmp_path: Path, what: str) -> None:
    filled(tmp_path, 6)
    file = next(tmp_path.glob("audit-*.jsonl"))
    lines = file.read_bytes().splitlines(keepends=True)
    match what:
        case "changed":
            lines[2] = lines[2].replace(b"drain", b"fence")
        case "taken out":
            del lines[2]
        case "put in":
            lines.insert(2, lines[1])
        case "swapped":
            lines[2], lines[3] = lines[3], lines[2]
        case _:
            lines[2] = b"\xff\x00 what\n"
    file.write_bytes(b"".join(lines))
    with pytest.raises(ChainError) as caught:
        walk(tmp_path)
    assert "3" in str(caught.value) or "record 2" in str(caught.value)


def test_a_damaged_last_line_stays_and_a_new_file_begins(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    file = next(tmp_path.glob("audit-*.jsonl"))
    file.write_bytes(file.read_bytes().replace(b'"at":2', b'"at":9'))
    before = file.read_bytes()
    filled(tmp_path, 1)
    assert file.read_bytes() == before
    with pytest.raises(ChainError, match="record 3"):
        walk(tmp_path)


def test_a_write_that_fails_leaves_no_trace_in_the_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = AuditFiles(tmp_path)
    files.append([{"verb": "a"}])

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            files.append([{"verb": "b"}])
    files.append([{"verb": "c"}])
    files.close()
    verbs = [record["verb"] for record in read_files(list(tmp_path.glob("audit-*.jsonl")))]
    assert verbs == ["a", "c"]
    assert walk(tmp_path) == 2


def test_pages(tmp_path: Path) -> None:
    filled(tmp_path, 30, max_file_bytes=1_000)
    files = AuditFiles(tmp_path)
    assert [record["number"] for record in files.before(None, 3)] == [28, 29, 30]
    assert [record["number"] for record in files.before(15, 4)] == [11, 12, 13, 14]
    assert [record["number"] for record in files.after(0, 2)] == [1, 2]
    assert [record["number"] for record in files.after(28, 9)] == [29, 30]
    assert [record["number"] for record in files.before(1, 9)] == []


def test_two_servers_do_not_write_one_audit(tmp_path: Path) -> None:
    one, other = AuditFiles(tmp_path), AuditFiles(tmp_path)
    one.open()
    with pytest.raises(AuditDirError):
        other.open()
    one.close()
    other.open()
    other.close()


def test_the_metrics_page_says_how_long_the_disk_takes(tmp_path: Path) -> None:
    files = AuditFiles(tmp_path)
    for number in range(3):
        files.append([{"verb": "drain", "at": number}, {"verb": "drain", "at": number}])
    files.close()
    (family,) = AuditMetrics(files.sync_s).collect()
    samples = {(each.name, each.labels.get("le")): each.value for each in family.samples}
    assert samples["infer_audit_sync_seconds_count", None] == 3
    assert samples["infer_audit_sync_seconds_bucket", "+Inf"] == 3
    assert samples["infer_audit_sync_seconds_sum", None] > 0
