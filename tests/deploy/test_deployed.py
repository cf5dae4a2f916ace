"""The example files do what they say: the config file is one, the ACL keeps fleets apart."""

import socket
import subprocess
import tomllib
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from infer_console.cli.serve import build_settings
from infer_engine.settings import SettingsError
from infer_engine.supervisor import Supervisor
from support.broker import broker, listening
from support.eventually import eventually

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_example_settings_are_settings() -> None:
    settings = build_settings({"config": str(DEPLOY / "server.example.toml"), "replicas": "3"})
    assert (settings.name, settings.replicas, settings.replica.max_running) == ("fleet-a", 3, 32)


def test_commented_settings_of_the_example_exist(tmp_path: Path) -> None:
    text = (DEPLOY / "server.example.toml").read_text()
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.splitlines()]
    uncommented = tmp_path / "all.toml"
    uncommented.write_text("\n".join(lines))
    assert tomllib.loads(uncommented.read_text()).keys() > {"mqtt", "mqtt_ca"}
    assert build_settings({"config": str(uncommented)}).mqtt == "mqtts://fleet-a@broker.example:8883"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("replicas = -1", "replicas"),
        ("replicsa = 2", "replicsa"),
        ("replica = 3", "replica is a table"),
        ("[replica]\nblock_size = 9000", "block_size"),
        ("this is no toml", "config"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as error:
        build_settings({"config": str(file)})
    assert says in str(error.value)
    assert "server.toml" in str(error.value) or says == "replicsa"


@pytest.mark.broker
def test_a_fleet_can_write_its_own_topics_and_no_other(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("")
    passwords.chmod(0o600)
    for user in ("fleet-a", "watcher"):
        subprocess.run(
            ["mosquitto_passwd", "-b", str(passwords), user, "secret"], check=True, capture_output=True
        )
    lines = (
        "allow_anonymous false",
        f"password_file {passwords}",
        f"acl_file {DEPLOY / 'mqtt' / 'infer.acl'}",
    )
    with (
        broker(tmp_path, *lines) as running,
        listening(running.port, "infer/v1/#", user="watcher", password="secret") as ear,
    ):
        fleet = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        fleet.username_pw_set("fleet-a", "secret")
        fleet.connect("127.0.0.1", running.port)
        fleet.loop_start()
        for topic in ("infer/v1/fleet-b/status", "infer/v1/fleet-a/status"):
            fleet.publish(topic, '{"from": "fleet-a"}', qos=1)
        assert eventually(lambda: ear.on("infer/v1/fleet-a/status"))
        assert ear.on("infer/v1/fleet-b/status") == []
        fleet.disconnect()
        fleet.loop_stop()


def test_systemd_is_told(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(60)
        supervisor = Supervisor.of_this_process({"NOTIFY_SOCKET": address})
        supervisor.ready()
        supervisor.stopping()
        assert [listener.recv(100), listener.recv(100)] == [b"READY=1", b"STOPPING=1"]


def test_nobody_is_told_where_nobody_listens() -> None:
    supervisor = Supervisor.of_this_process({})
    supervisor.ready()
    supervisor.stopping()
