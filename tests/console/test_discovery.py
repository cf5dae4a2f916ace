"""What discover finds: real servers on this machine, and fleets that a real broker retains."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from infer_console import connect
from infer_console.cli import codes, main
from infer_console.discovery import host, others
from infer_console.discovery.broker import BrokerUrl, find_at_broker, parse_broker_url
from infer_console.discovery.found import DiscoverError, Found
from infer_console.watched import Pace
from support.broker import Broker, broker, listening
from support.eventually import eventually
from support.foreign_server import foreign_server, vllm_pages
from support.server import EngineServer, serving


def retain(running: Broker, **messages: bytes) -> None:
    """``a__b`` is the topic a/b under infer/v1."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.connect("127.0.0.1", running.port)
    client.loop_start()
    for topic, payload in messages.items():
        name = topic.replace("__", "/").replace("_", "-")
        client.publish(f"infer/v1/{name}", payload, qos=1, retain=True).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()


def at(running: Broker, fleet: str | None = None) -> dict[str, Found]:
    found = asyncio.run(find_at_broker(BrokerUrl("127.0.0.1", running.port, False, None, fleet)))
    return {each.where.rpartition("/")[2]: each for each in found}


@pytest.mark.broker
def test_fleets_of_a_broker_alive_and_dead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with broker(tmp_path) as running:
        url = f"mqtt://127.0.0.1:{running.port}"
        with (
            listening(running.port) as ear,
            serving(simulate="llama-8b@1xh100", name="Edge A", mqtt=url, replicas=2) as server,
        ):
            eventually(lambda: (ear.last("infer/v1/edge-a/r1/status") or {}).get("state") == "ready")

            def discovered() -> list[dict[str, Any]]:
                """Once all that is retained has come in the time that is given for it."""
                assert main(["discover", url, "--json"]) == codes.OK
                return [each for each in json.loads(capsys.readouterr().out)["found"] if each["ready"] == 2]

            (found,) = eventually(discovered)
            assert (found["name"], found["state"], found["simulated"]) == ("Edge A", "online", True)
            assert (found["replicas"], found["ready"]) == (2, 2)
            assert found["gateway"] == server.gateway_url
            assert found["url"] is None  # nobody reaches it from elsewhere
        eventually(lambda: [each.state for each in at(running).values()] == ["offline"])
        assert at(running, "other") == {}
    assert main(["discover", url]) == codes.UNREACHABLE
    assert "mqtt broker" in capsys.readouterr().err


@pytest.mark.broker
def test_what_others_write_there_is_bounded_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with broker(tmp_path) as running:
        retain(
            running,
            bad__status=b"{",
            bad__info=b'{"name": 7}',
            late__status=b'{"state": "offline", "incarnation": 4}',
            late__info=b'{"incarnation": 5, "name": "\\u001b]0;x\\u0007", "control": "https://far:9000"}',
            late__r0__status=b'{"state": "ready"}',
            late__r1__status=b'{"state": "drained"}',
            late__r2__status=b"[" * 100_000,
        )
        found = eventually(
            lambda: both if len(both := at(running)) == 2 and both["late"].replicas == 2 else None
        )
        assert (found["bad"].state, found["bad"].name) == ("unknown", "bad")
        assert found["late"].state == "online"  # the will is of the life before
        assert (found["late"].ready, found["late"].replicas) == (1, 2)
        assert found["late"].url == "https://far:9000"
        assert main(["discover", f"mqtt://127.0.0.1:{running.port}"]) == codes.OK
        assert "\x1b" not in capsys.readouterr().out


def test_servers_of_this_machine(
    engine: EngineServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    async def nobody_else(proc: Path) -> list[Found]:
        return []

    monkeypatch.setattr(others, "find_others_on_host", nobody_else)
    # By its process, though its socket is nowhere usual; and once, though it is in the contexts file too.
    (tmp_path / "infer-console").mkdir()
    (tmp_path / "infer-console/contexts.toml").write_text(
        f'[contexts.lab]\nurl = "{engine.control_url}"\n[contexts.far]\nurl = "https://far:9000"\n'
    )
    assert main(["discover", "--json"]) == codes.OK
    found = [
        each for each in json.loads(capsys.readouterr().out)["found"] if each["url"] == engine.control_url
    ]
    assert [(each["where"], each["state"], each["ready"]) for each in found] == [("process", "online", 2)]
    assert main(["discover"]) == codes.OK
    assert engine.control_url in capsys.readouterr().out


def test_by_the_usual_sockets_and_not_by_dead_ones(
    engine: EngineServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = engine.directory / "run"
    (runtime / "infer-console").mkdir(parents=True)
    (runtime / "infer-console/default.sock").hardlink_to(engine.socket_path)
    (runtime / "infer-console/text.sock").write_text("no socket")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = asyncio.run(host.find_on_host(proc=tmp_path))
    assert [(each.where, each.state) for each in found] == [("socket", "online")]


@pytest.mark.parametrize("mine", [True, False])
def test_a_token_goes_to_no_process_of_another_user(
    mine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may run something can call it like a server of ours."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("INFER_CONSOLE_TOKEN", "secret")

    def process(name: str, **settings: str) -> Path:
        words = ("python", "-m", "infer_engine", "serve", "--settings", json.dumps(settings))
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1/cmdline").write_bytes("\0".join(words).encode())
        return tmp_path / name

    far = process("far", control_listen="elsewhere.test:9000", tls_cert="x")
    if not mine:
        monkeypatch.setattr("os.getuid", lambda: tmp_path.stat().st_uid + 1)
    with foreign_server({}) as server:
        asyncio.run(host.find_on_host(process("near", control_listen=server.url.removeprefix("http://"))))
    assert server.keys == {"Bearer secret" if mine else None}
    # And who says that it listens on another machine has nobody asked there.
    targets = [target for _, target in host._candidates(far)]  # pyright: ignore[reportPrivateUsage]
    assert [each.url for each in targets if each.tls] == (["https://elsewhere.test:9000"] if mine else [])


def test_a_gateway_that_is_none_is_no_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ours(proc: Path = Path()) -> list[Found]:
        return [Found(where="socket", state="online", url="unix:///x", gateway="http://x:nine")]

    async def others_there(proc: Path) -> list[Found]:
        return [Found(where="port 9", state="online", gateway="http://[")]

    monkeypatch.setattr(host, "find_on_host", ours)
    monkeypatch.setattr(others, "find_others_on_host", others_there)
    assert main(["discover", "--json"]) == codes.OK
    assert [each["where"] for each in json.loads(capsys.readouterr().out)["found"]] == ["socket"]


def test_command_lines_that_only_look_like_servers(tmp_path: Path) -> None:
    for number, words in enumerate(
        (
            [b"python", b"-m", b"infer_engine", b"serve", b"--settings"],
            [b"python", b"-m", b"infer_engine", b"serve", b"--settings", b"{"],
            [b"python", b"-m", b"infer_engine", b"serve", b"--settings", b'{"control": 7}'],
            [b"grep", b"infer_engine"],
        )
    ):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "cmdline").write_bytes(b"\0".join(words))
    (tmp_path / "9").mkdir()
    found = asyncio.run(host.find_on_host(proc=tmp_path))
    assert all(each.where != "process" for each in found)


@pytest.mark.parametrize(
    "url",
    ["mqtt://u:p@h", "mqtt://", "http://h", "mqtt://h/a/b", "mqtt://h/+", "mqtt://h:x", "mqtt://h?x=1"],
)
def test_urls_that_are_no_brokers(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DiscoverError):
        parse_broker_url(url)
    assert main(["discover", url]) == codes.USAGE
    assert capsys.readouterr().err.startswith("infer-console: discover: ")


def test_a_broker_is_no_server_to_connect_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--connect", "mqtt://broker/fleet", "status"]) == codes.USAGE
    assert "infer-console discover" in capsys.readouterr().err


# --- servers that are not ours


def listening_at(tmp_path: Path, *places: tuple[str, int, str]) -> Path:
    """What the kernel would tell of them: (address as it writes it, port, state)."""
    (tmp_path / "net").mkdir()
    lines = ["  sl  local_address rem_address   st", "what is this"]
    for number, (address, port, state) in enumerate(places):
        lines.append(f"{number:4}: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:0")
    (tmp_path / "net/tcp").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_what_says_nothing_is_left_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "FIRST_BYTES_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        proc = listening_at(tmp_path, ("0100007F", silent.getsockname()[1], "0A"))
        assert asyncio.run(others.find_others_on_host(proc)) == []


def test_others_on_this_machine_are_found_by_their_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(others, "FIRST_BYTES_S", 20.0)
    monkeypatch.setattr(others, "ANSWER_S", 20.0)
    with foreign_server(vllm_pages("busy")) as vllm, foreign_server({}) as website:
        port, web = (int(each.url.rpartition(":")[2]) for each in (vllm, website))
        proc = listening_at(
            tmp_path,
            ("0100007F", port, "0A"),
            ("00000000", port, "0A"),  # the same once more
            ("0100007F", web, "0A"),
            ("0100007F", 1, "0A"),  # it has left meanwhile
            ("0100007F", web + 1, "01"),  # a connection
            ("0107000A", port + 1, "0A"),  # not on this machine's loopback
            ("zz", 80, "0A"),
        )
        (found,) = asyncio.run(others.find_others_on_host(proc))
    assert (found.where, found.state, found.url) == (f"port {port}", "online", f"vllm+{vllm.url}")
    assert (found.model, (found.version or "").partition(" ")[0]) == ("smollm2", "vLLM")
    assert {line.partition(" ")[0] for line in (*vllm.asked, *website.asked)} == {"GET"}
    assert vllm.keys == {None}


def test_addresses_as_the_kernel_writes_them(tmp_path: Path) -> None:
    one = "00000000000000000000000001000000"
    mapped = "0000000000000000FFFF00000100007F"
    proc = listening_at(
        tmp_path, (one, 7001, "0A"), (mapped, 7002, "0A"), ("0" * 32, 7003, "0A"), ("0100007F", 6379, "0A")
    )
    assert list(others._listened(proc)) == [("::1", 7001), ("127.0.0.1", 7002), ("127.0.0.1", 7003)]
    assert list(others._listened(tmp_path / "nowhere")) == []


def test_servers_behind_a_name(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "DEFAULT_PACE", Pace(look_s=0.05, grace_s=20.0))
    with foreign_server(vllm_pages("busy")) as server:
        port = server.url.rpartition(":")[2]
        assert main(["discover", f"dns+vllm://localhost:{port}", "--json"]) == codes.OK
        fleet, *each = json.loads(capsys.readouterr().out)["found"]
    assert (fleet["url"], fleet["model"]) == (f"dns+vllm://localhost:{port}", "smollm2")
    assert (fleet["where"], fleet["ready"]) == ("dns localhost", 1)
    found = {one["url"]: one["state"] for one in each}
    assert found[f"vllm+http://127.0.0.1:{port}"] == "online"
    assert main(["discover", f"dns+vllm://localhost:{port}"]) == codes.UNREACHABLE
    assert "cannot connect" in capsys.readouterr().err
    assert main(["discover", "dns+vllm://a:1/x"]) == codes.USAGE
    assert main(["discover", "dns+dcgm://a:1"]) == codes.USAGE
