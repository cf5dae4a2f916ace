"""What discover finds: real servers on this machine, and fleets that a real broker retains."""

import asyncio
import json
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from infer_console.cli import codes, main
from infer_console.discovery import host
from infer_console.discovery.broker import BrokerUrl, find_at_broker, parse_broker_url
from infer_console.discovery.found import DiscoverError, Found
from support.broker import Broker, broker, listening
from support.eventually import eventually
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
            assert main(["discover", url, "--json"]) == codes.OK
            (found,) = json.loads(capsys.readouterr().out)["found"]
            assert (found["name"], found["state"], found["simulated"]) == ("Edge A", "online", True)
            assert (found["replicas"], found["ready"]) == (2, 2)
            assert found["gateway"] == server.gateway_url
            assert found["url"] is None  # nobody reaches it from elsewhere
        assert at(running)["edge-a"].state == "offline"
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
        found = at(running)
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
