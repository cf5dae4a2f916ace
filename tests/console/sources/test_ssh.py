"""``ssh://`` with an ssh that goes nowhere: the real proxy on this machine, in front of the real server."""

import os
import sys
from pathlib import Path

import pytest
from infer_console.connect import ConnectError, SshHost, Target, parse_url
from infer_console.sources.client import EngineClient
from infer_console.sources.failures import UnreachableError
from infer_console.sources.ssh import ssh_command
from support.server import EngineServer

#: Takes ssh's words, prints what a login may print, and runs the command here.
FAKE = """#!/bin/sh
echo "$@" >> {log}
test -n "$INFER_CONSOLE_TOKEN" && echo leaked >> {log}
while [ "$1" != "--" ]; do shift; done
if [ "$2" = nowhere ]; then echo "Permission denied (publickey)." >&2; exit 255; fi
echo "Welcome to $2"
command=$(echo "$3" | sed 's/^infer-console //')
exec {python} -c 'import sys; from infer_console.cli import main; sys.exit(main(sys.argv[1:]))' $command
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "log"
    ssh = tmp_path / "ssh"
    ssh.write_text(FAKE.format(log=path, python=sys.executable))
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("INFER_CONSOLE_TOKEN", "icp_1_secret")
    return path


async def test_a_server_is_watched_through_ssh(engine: EngineServer, log: Path) -> None:
    async with EngineClient(parse_url(f"ssh://ann@Lab{engine.socket_path}")) as client:
        hello = await client.hello()
        assert (hello.role, hello.subject) == ("admin", f"uid:{os.getuid()}")
        async with client.watch([], [], 4.0) as stream:
            async for message in stream.messages():
                assert "snapshot-begin" in message
                break
    said = log.read_text()  # noqa: ASYNC240 - a few bytes
    assert "-oBatchMode=yes" in said
    assert f"-- ann@Lab infer-console proxy --greet --control unix://{engine.socket_path}" in said
    assert "leaked" not in said
    assert "secret" not in said


async def test_why_ssh_failed_is_said(log: Path) -> None:
    async with EngineClient(parse_url("ssh://nowhere")) as client:
        with pytest.raises(UnreachableError, match=r"Permission denied \(publickey\)") as caught:
            await client.hello()
    assert not caught.value.sent


async def test_no_server_there_is_said(log: Path, tmp_path: Path) -> None:
    async with EngineClient(parse_url("ssh://lab/nonexistent/c.sock")) as client:
        with pytest.raises(UnreachableError, match="No such file"):
            await client.hello()


def test_words_for_ssh() -> None:
    words = ssh_command(SshHost("h", "u", 2222, "/run/c.sock"))
    assert words[-6:-2] == ["-oClearAllForwardings=yes", "-p", "2222", "--"]
    assert words[-2:] == ["u@h", "infer-console proxy --greet --control unix:///run/c.sock"]


@pytest.mark.parametrize(
    "url",
    [
        "ssh://-oProxyCommand=x",
        "ssh://h;id",
        "ssh://$(id)",
        "ssh://u@-h",
        "ssh://-u@h",
        "ssh://h/a;b",
        "ssh://h/a'b",
        "ssh://h/a b",
        "ssh://h/$HOME",
        "ssh://h/`id`",
        "ssh://",
        "ssh://h?x",
        "ssh://h#x",
        "ssh://h:99999",
        "ssh://u:secret@h",
    ],
)
def test_nothing_in_a_url_gets_to_a_shell(url: str) -> None:
    with pytest.raises(ConnectError):
        parse_url(url)


def test_a_target_never_shows_its_token() -> None:
    assert "secret" not in repr(Target(url="https://h", token="icp_1_secret"))
