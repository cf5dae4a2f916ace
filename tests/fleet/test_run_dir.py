"""The directory of a running fleet: private, gone afterwards, and swept when its server was killed."""

import os
from pathlib import Path

import pytest
from infer_engine.fleet.run_dir import LOCK, RunDir, sweep

LONG_AGO = 1_000_000_000


def test_it_is_private_exclusive_and_gone_afterwards(tmp_path: Path) -> None:
    directory = RunDir(None, "one", tmp_path)
    directory.open()
    assert directory.path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        RunDir(None, "one", tmp_path).open()
    directory.close()
    directory.close()
    assert os.listdir(tmp_path) == []


def test_a_given_one_is_made_and_left(tmp_path: Path) -> None:
    directory = RunDir(tmp_path / "a" / "b", "name")
    directory.open()
    directory.close()
    assert (tmp_path / "a" / "b").is_dir()


def test_only_what_dead_servers_left_is_swept(tmp_path: Path) -> None:
    living = RunDir(None, "living", tmp_path)
    living.open()
    (tmp_path / "infer-dead").mkdir()
    (tmp_path / "infer-dead" / LOCK).touch()
    (tmp_path / "infer-dead" / "r0.log").write_text("last words")
    (tmp_path / "infer-young").mkdir()
    (tmp_path / "infer-young" / LOCK).touch()
    (tmp_path / "infer-of-somebody-else").mkdir()
    (tmp_path / "infer-file").touch()
    for name in ("infer-living", "infer-dead", "infer-of-somebody-else", "infer-file"):
        os.utime(tmp_path / name, (LONG_AGO, LONG_AGO))
    assert sweep(tmp_path) == [tmp_path / "infer-dead"]
    assert sorted(os.listdir(tmp_path)) == [
        "infer-file",
        "infer-living",
        "infer-of-somebody-else",
        "infer-young",
    ]
    living.close()
