"""A real mosquitto on a free port, and a listener that writes down what it hears."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import paho.mqtt.client as mqtt
import pytest
from infer_engine.benchmark.processes import free_port

DEADLINE_S = 60.0


def mosquitto() -> str:
    """Its path. Where the suite must be whole its absence fails, elsewhere it skips."""
    path = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("mosquitto is not installed")
        pytest.skip("mosquitto is not installed")
    return path


class EndedError(AssertionError):
    """With the log of one that ended by itself."""


def _as_ourselves() -> tuple[str, ...]:
    """Started by root it would become a user who cannot read a test's files."""
    return ("user root",) if os.getuid() == 0 else ()


class Broker:
    def __init__(self, directory: Path, *lines: str, host: str = "127.0.0.1") -> None:
        self.host = host
        self._config = directory / "mosquitto.conf"
        self._log = directory / "mosquitto.log"
        extra = lines or ("allow_anonymous true",)
        for left in (2, 1, 0):
            self.port = free_port()
            self._config.write_text(
                "\n".join(
                    (f"listener {self.port} 127.0.0.1", "persistence false", *_as_ourselves(), *extra, "")
                )
            )
            try:
                self.start()
            except EndedError:  # somebody else may have the port by now
                if not left:
                    raise
            else:
                return

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [mosquitto(), "-c", str(self._config)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 10).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise EndedError(self._log.read_text()) from None
                assert time.monotonic() < deadline_s, "mosquitto does not listen"
                time.sleep(0.02)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def hang(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


@dataclass
class Heard:
    topic: str
    payload: dict[str, Any]
    retain: bool


@dataclass
class Ear:
    heard: list[Heard] = field(default_factory=list[Heard])

    def on(self, topic: str) -> list[Heard]:
        return [each for each in self.heard if each.topic == topic]

    def last(self, topic: str) -> dict[str, Any] | None:
        found = self.on(topic)
        return found[-1].payload if found else None


@contextmanager
def broker(directory: Path, *lines: str) -> Generator[Broker]:
    running = Broker(directory, *lines)
    try:
        yield running
    finally:
        running.kill()


@contextmanager
def listening(
    port: int, topic: str = "#", *, user: str | None = None, password: str | None = None
) -> Generator[Ear]:
    """Subscribed when this begins."""
    ear, subscribed = Ear(), []
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    if user is not None:
        client.username_pw_set(user, password)

    def on_message(_client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        payload = msgspec.json.decode(message.payload) if message.payload else {}
        ear.heard.append(Heard(message.topic, payload, message.retain))

    client.on_message = on_message
    client.on_connect = lambda *_: client.subscribe(topic, qos=1)
    client.on_subscribe = lambda *_: subscribed.append(True)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        deadline_s = time.monotonic() + DEADLINE_S
        while not subscribed:
            assert time.monotonic() < deadline_s, "not subscribed"
            time.sleep(0.01)
        yield ear
    finally:
        client.disconnect()
        client.loop_stop()
