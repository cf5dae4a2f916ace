"""Tokens and their file: only digests are kept, and a file that others could have read or written is none."""

import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from infer_engine.control.backoff import MAX_FAILURES, MAX_SOURCES, WINDOW_S, FailureLog
from infer_engine.control.token_file import (
    Certificate,
    TokenFile,
    TokenFileError,
    read_token_file,
    write_token_file,
)
from infer_engine.control.tokens import Token, digest, find, new_token
from infer_engine.token_command import add_options, run


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def entry(**changes: str) -> str:
    values = {"id": "a1", "name": "ann", "role": "viewer", "sha256": "0" * 64, **changes}
    return "[[tokens]]\n" + "".join(f'{key} = "{value}"\n' for key, value in values.items() if value)


def secret_of(text: str) -> str:
    """All of it: there may be underscores in it, too."""
    return text.split("_", 2)[2]


def test_a_token_has_256_bits_and_only_its_digest_is_kept() -> None:
    token, text = new_token("ann", "operator")
    assert re.fullmatch(r"icp_[0-9a-f]{8}_[A-Za-z0-9_-]{43}", text)
    assert token.sha256 == digest(text)
    assert secret_of(text) not in repr(token)
    assert new_token("ann", "operator")[1] != text


def test_the_right_one_of_several_is_found_and_nothing_else() -> None:
    made = [new_token(name, "viewer") for name in ("a", "b", "c")]
    tokens = [token for token, _ in made]
    assert [find(tokens, text) for _, text in made] == tokens
    for wrong in ("", "icp_", made[0][1][:-1], made[0][1] + "x", made[0][1].upper(), "x" * 10_000, "\udc80"):
        assert find(tokens, wrong) is None


def test_what_is_written_is_read(tmp_path: Path) -> None:
    first, _ = new_token("ann", "operator", datetime(2030, 1, 31, 12, tzinfo=UTC))
    second, _ = new_token("b.c@d", "content")
    content = TokenFile((first, second), (Certificate('CN "x"\\', "viewer"),))
    path = tmp_path / "tokens.toml"
    write_token_file(path, content)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_token_file(path) == content
    assert os.listdir(tmp_path) == ["tokens.toml"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o601])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = private(tmp_path / "t", entry())
    path.chmod(mode)
    with pytest.raises(TokenFileError, match=f"others may read or write it \\(mode 0{mode:o}\\)"):
        read_token_file(path)


def test_a_link_a_pipe_a_directory_and_nothing_are_refused(tmp_path: Path) -> None:
    private(tmp_path / "t", entry())
    (tmp_path / "link").symlink_to(tmp_path / "t")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, says in (
        ("link", "is a link; name the file itself"),
        ("pipe", "not a regular file"),
        (".", "not a regular file"),
        ("none", "No such file"),
    ):
        with pytest.raises(TokenFileError, match=says):
            read_token_file(tmp_path / name)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_somebody_elses_file_is_refused(tmp_path: Path) -> None:
    path = private(tmp_path / "t", entry())
    os.chown(path, 65_534, -1)
    with pytest.raises(TokenFileError, match="belongs to another user \\(uid 65534\\)"):
        read_token_file(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (entry(role="root"), r"token 1 \(a1\): role: expected one of viewer, content, operator, admin"),
        (entry(sha256="abc"), "sha256: expected 64 hexadecimal digits"),
        (entry(name="a b"), "name: 1 to 64 of the characters"),
        (entry(id="../x"), "id"),
        (entry(id=""), "missing required field `id`"),
        (entry() + entry(), "two tokens have the same id"),
        (entry() + "expires = 2030-01-01T00:00:00", "expected a time with its zone"),
        (entry() + "secret = 'x'", "unknown field `secret`"),
        ("[[certificates]]\nname = ''\nrole = 'viewer'", "name"),
        ("[[certificates]]\nname = 'a'\nrole = 'viewer'\n" * 2, "two certificates have the same name"),
        ("tokens = 3", "Expected `array`"),
        ("tokens", "Expected '=' after a key"),
        ("#" * 2_000_000, "larger than 1,048,576 bytes"),
    ],
)
def test_a_file_with_a_mistake_is_refused_as_a_whole(tmp_path: Path, text: str, says: str) -> None:
    path = private(tmp_path / "t", text)
    with pytest.raises(TokenFileError, match=says) as caught:
        read_token_file(path)
    assert str(path) in str(caught.value)


def test_roles_have_a_second_spelling(tmp_path: Path) -> None:
    assert read_token_file(private(tmp_path / "t", entry(role="viewer+content"))).tokens[0].role == "content"


def test_an_expired_token_is_known_as_that() -> None:
    token = Token(id="a", name="a", role="viewer", sha256="0", expires=datetime.fromtimestamp(100, UTC))
    assert [token.has_expired(at) for at in (99.0, 100.0, 101.0)] == [False, True, True]


def test_the_command_adds_lists_and_revokes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from argparse import ArgumentParser

    def token(*words: str) -> tuple[int, str, str]:
        parser = ArgumentParser()
        add_options(parser)
        code = run(parser.parse_args([*words, "--file", str(tmp_path / "t")]))
        return code, *capsys.readouterr()

    texts = [token("new", "--name", name, "--role", "operator")[1].strip() for name in ("ann", "bob")]
    known = read_token_file(tmp_path / "t").tokens
    assert [find(known, text) for text in texts] == list(known)
    code, out, err = token("list")
    assert (code, [line.split()[:3] for line in out.splitlines()]) == (
        0,
        [[each.id, "operator", each.name] for each in known],
    )
    assert not any(secret_of(text) in out + err + (tmp_path / "t").read_text() for text in texts)
    assert token("revoke", known[0].id)[0] == 0
    assert [each.name for each in read_token_file(tmp_path / "t").tokens] == ["bob"]
    assert token("revoke", known[0].id)[0] == 1
    with pytest.raises(SystemExit):
        token("new", "--name", "x", "--role", "king")


def test_failures_are_counted_by_source_within_a_minute() -> None:
    now_s = 0.0
    log = FailureLog(lambda: now_s)
    assert [log.failed("a") for _ in range(MAX_FAILURES)] == [None] * MAX_FAILURES
    now_s = 20.0
    assert log.failed("a") == WINDOW_S - 20.0
    assert log.failed("b") is None
    now_s = WINDOW_S
    assert log.failed("a") is None


def test_sources_are_bounded() -> None:
    log = FailureLog(lambda: 0.0)
    for number in range(MAX_SOURCES + 10):
        log.failed(str(number))
    assert len(log._failures) == MAX_SOURCES
