"""What it costs a server to tell an MQTT broker about many idle replicas."""

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from infer_console.ui.benchmark.fleet import pin
from infer_engine.benchmark.engine_server import engine_server
from infer_engine.benchmark.processes import cpu_seconds, free_port
from infer_engine.benchmark.setup import Setup
from scale_server import DEPLOYMENT, SETTLE_S, WINDOW_S
from scale_table import Row


def mqtt(replicas: int) -> Row:
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        return {}
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    heard = [0, 0]

    def count(_client: Any, _data: Any, message: Any) -> None:
        heard[0] += 1
        heard[1] += len(message.payload)

    port = free_port()
    with tempfile.TemporaryDirectory(prefix="scale-") as directory, ExitStack() as stack:
        settings = {"simulate": DEPLOYMENT, "speed": 1.0, "mqtt": f"mqtt://127.0.0.1:{port}"}
        fleet = stack.enter_context(engine_server(Setup(), replicas=replicas, server=settings))
        pin([fleet.process.pid], 0)
        time.sleep(SETTLE_S)
        alone = share(fleet.process.pid)
        config = Path(directory) / "mosquitto.conf"
        user = "user root\n" if os.getuid() == 0 else ""
        config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n{user}")
        broker = subprocess.Popen(
            [program, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(broker.wait, 10)
        stack.callback(broker.terminate)
        time.sleep(0.5)
        client = paho.Client(CallbackAPIVersion.VERSION2)
        client.on_message = count
        client.connect("127.0.0.1", port)
        client.subscribe("infer/#")
        client.loop_start()
        stack.callback(client.loop_stop)
        deadline_s = time.monotonic() + 40
        while heard[0] < 2 * (replicas + 1) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        before, began_s = list(heard), time.monotonic()
        used = share(fleet.process.pid)
        taken_s = time.monotonic() - began_s
        return {
            "MQTT, messages/s": (heard[0] - before[0]) / taken_s,
            "MQTT, bytes/s": (heard[1] - before[1]) / taken_s,
            "MQTT, server CPU, %": used - alone,
        }


def share(pid: int) -> float:
    """Per cent of a core that a process uses for a while."""
    used_s, began_s = cpu_seconds(pid), time.monotonic()
    time.sleep(WINDOW_S)
    return 100 * (cpu_seconds(pid) - used_s) / (time.monotonic() - began_s)
