import os
from pathlib import Path

import pytest
from infer_engine.secret_file import SecretFileError, read_secret_file, write_secret_file


def test_what_is_written_is_read_and_only_its_owner_can(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_secret_file(path, b"first")
    write_secret_file(path, b"second")
    assert read_secret_file(path) == b"second"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["keys"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610])
def test_a_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"secret")
    path.chmod(mode)
    with pytest.raises(SecretFileError, match=f"mode {mode:04o}.*chmod 600") as refused:
        read_secret_file(path)
    assert "secret" not in str(refused.value)


def test_a_link_is_refused_both_ways(tmp_path: Path) -> None:
    write_secret_file(tmp_path / "real", b"secret")
    link = tmp_path / "link"
    link.symlink_to("real")
    with pytest.raises(SecretFileError, match="is a link"):
        read_secret_file(link)
    with pytest.raises(SecretFileError, match="is a link"):
        write_secret_file(link, b"other")
    assert read_secret_file(tmp_path / "real") == b"secret"


def test_what_is_no_file_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SecretFileError, match="No such file"):
        read_secret_file(tmp_path / "none")
    with pytest.raises(SecretFileError, match="not a regular file"):
        read_secret_file(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(SecretFileError, match="not a regular file"):
        read_secret_file(tmp_path / "pipe")  # and does not wait for a writer
    write_secret_file(tmp_path / "large", b"x" * 11)
    with pytest.raises(SecretFileError, match="larger than 10 bytes"):
        read_secret_file(tmp_path / "large", max_bytes=10)


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(SecretFileError, match="directory"):
        write_secret_file(tmp_path / "taken", b"x")
    assert os.listdir(tmp_path) == ["taken"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_secret_file(path, b"x")
    os.chown(path, 12345, -1)
    with pytest.raises(SecretFileError, match="belongs to another user"):
        read_secret_file(path)
