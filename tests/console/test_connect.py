"""Which server: the order in which names count, and what is said about names that lead nowhere."""

import socket
from collections.abc import Generator
from pathlib import Path

import pytest
from infer_console.connect import ConnectError, Target, find_embedded, parse_url, resolve, resolve_running
from support.server import short_directory

ENVIRONMENT = {"INFER_CONSOLE_CONNECT": "unix:///run/env.sock"}
CONTEXTS = """
current = "prod"

[contexts.prod]
url = "https://fleet.example:9000/"
colour = "red"
read-only = true
production = true

[contexts.lab]
url = "unix:///run/lab.sock"
"""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    with short_directory() as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(path / "config"))
        yield path


@pytest.fixture
def contexts(tmp_path: Path) -> Path:
    path = tmp_path / "contexts.toml"
    path.write_text(CONTEXTS)
    return path


def test_the_option_comes_before_the_environment_and_that_before_the_context(contexts: Path) -> None:
    by_option = resolve(["unix:///run/option.sock"], ENVIRONMENT, contexts)
    by_environment = resolve([], ENVIRONMENT, contexts)
    by_context = resolve([], {}, contexts)
    assert [each and each.url for each in (by_option, by_environment, by_context)] == [
        "unix:///run/option.sock",
        "unix:///run/env.sock",
        "https://fleet.example:9000",
    ]


def test_a_context_brings_its_marks(contexts: Path) -> None:
    target = resolve([], {}, contexts)
    assert target is not None
    assert (target.name, target.colour, target.read_only, target.production) == ("prod", "red", True, True)


def test_nobody_named_one(tmp_path: Path) -> None:
    assert resolve([], {}, tmp_path / "none.toml") is None
    assert resolve([], {"INFER_CONSOLE_CONNECT": ""}, tmp_path / "none.toml") is None


def test_verbs_then_try_the_default_socket(runtime: Path) -> None:
    target = resolve_running([], {})
    assert (target.socket, target.source) == (
        f"{runtime}/infer-console/default.sock",
        "default control socket",
    )


@pytest.mark.parametrize(
    ("url", "socket", "base_url"),
    [
        ("unix:///a/b.sock", "/a/b.sock", "http://localhost"),
        (" UNIX:///a/b.sock ", "/a/b.sock", "http://localhost"),
        ("http://127.0.0.1:9000", None, "http://127.0.0.1:9000"),
        ("https://host", None, "https://host"),
        ("http://[::1]:9000/", None, "http://[::1]:9000"),
    ],
)
def test_urls_that_are_understood(url: str, socket: str | None, base_url: str) -> None:
    target = parse_url(url)
    assert (target.socket, target.base_url) == (socket, base_url)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "is not a URL of the form unix:///path or http"),
        ("/run/x.sock", "is not a URL of the form unix:///path or http"),
        ("unix://run/x.sock", "three slashes"),
        ("unix:///", "three slashes"),
        ("unix:///" + "x" * 120, "a unix socket's may have 107"),
        ("http://", "is not http://HOST:PORT"),
        ("http://host:99999", "Port out of range"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://host/path", "is not http://HOST:PORT"),
        ("http://me:secret@host:1", "no place for a secret"),
        ("vllm+http://a,http://b", "together are watched only"),
        ("vllm+http://a,b:x", "Port could not be cast"),
        ("vllm+http://a#gpu=first", "numbers or UUIDs"),
        ("dcgm+http://a:9400", "name the servers on its machine too"),
        (",".join(["vllm+http://a"] + [f"b{number}" for number in range(64)]), "65 servers were given"),
        ("vllm+http://host:8000/v1", "is not vllm+http://HOST:PORT"),
        ("vllm+http://me:secret@host:1", "no place for a secret"),
        ("ftp://host", "is not a URL of the form"),
    ],
)
def test_urls_that_lead_nowhere(url: str, says: str) -> None:
    with pytest.raises(ConnectError) as caught:
        parse_url(url)
    assert says in str(caught.value)
    assert "--connect" in str(caught.value)
    assert "secret@" not in str(caught.value)


def test_a_verb_speaks_to_one_server() -> None:
    with pytest.raises(ConnectError, match="speaks to one server"):
        resolve(["unix:///a", "unix:///b"], {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("current = 'prd'\n[contexts.prod]\nurl = 'unix:///x'", "did you mean 'prod'"),
        ("current = 'q'", "known: none"),
        ("current = 3", "Expected `str"),
        ("[contexts.lab]\nurl = 'unix:///x'\nread_only = true", "unknown field `read_only`"),
        ("[contexts.lab]\n", "missing required field `url`"),
        ("[contexts.eu]\n", "toml: contexts.eu: Object missing"),
        ("[contexts.lab]\nurl = 'unix:///x'\n[contexts.eu]\nurl = 3", "toml: contexts.eu.url: Expected `str"),
        (
            "[contexts.eu]\nurl = 'unix:///x'\ncolour = 'mauve'",
            "contexts.eu.colour: 'mauve' was given, allowed is red",
        ),
        ("contexts = 3", "toml: contexts: Expected `object"),
        ("current = ", "Invalid value"),
    ],
)
def test_a_contexts_file_with_a_mistake_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "contexts.toml"
    path.write_text(text)
    with pytest.raises(ConnectError) as caught:
        resolve([], {}, path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_target_over_tcp_has_no_socket() -> None:
    assert Target(url="http://h:1").base_url == "http://h:1"


def listening(path: Path, mode: int = 0o700) -> socket.socket:
    path.parent.mkdir()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    path.parent.chmod(mode)
    return listener


def test_the_engine_of_the_one_console_that_runs_its_own_is_found(runtime: Path) -> None:
    assert find_embedded() is None
    with listening(runtime / "infer-console-a" / "control.sock"):
        found = find_embedded()
        assert found is not None
        assert found.socket == str(runtime / "infer-console-a" / "control.sock")
        assert resolve_running([], {}) == found
        with listening(runtime / "infer-console" / "default.sock"):
            assert resolve_running([], {}).source == "default control socket"
    assert find_embedded() is None, "nobody listens there any more"
    assert resolve_running([], {}).source == "default control socket"


def test_several_of_them_are_listed(runtime: Path) -> None:
    with (
        listening(runtime / "infer-console-a" / "control.sock"),
        listening(runtime / "infer-console-b" / "control.sock"),
        pytest.raises(ConnectError) as caught,
    ):
        resolve_running([], {})
    assert str(caught.value).splitlines() == [
        "2 consoles run an engine of their own; name one:",
        f"  --connect unix://{runtime}/infer-console-a/control.sock",
        f"  --connect unix://{runtime}/infer-console-b/control.sock",
    ]


def test_a_directory_that_others_can_enter_is_not_trusted(runtime: Path) -> None:
    with listening(runtime / "infer-console-a" / "control.sock", 0o755):
        assert find_embedded() is None
