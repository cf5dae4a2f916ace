"""A server that publishes: what its broker's other clients learn of its life and of its death."""

from pathlib import Path

import pytest
from support.broker import broker, listening
from support.eventually import eventually
from support.server import serving

STATUS = "infer/v1/edge-a/status"

pytestmark = pytest.mark.broker


def test_birth_death_and_the_next_life(tmp_path: Path) -> None:
    with broker(tmp_path) as running, listening(running.port) as ear:
        settings = {
            "name": "edge-a",
            "simulate": "llama-8b@1xh100",
            "replicas": 2,
            "mqtt": f"mqtt://127.0.0.1:{running.port}",
        }
        with serving(**settings) as server:
            eventually(lambda: ear.last("infer/v1/edge-a/r1/telemetry"))
            info = ear.last("infer/v1/edge-a/info")
            assert info is not None
            assert info["simulated"] is True
            assert info["gateway"] == server.gateway_url
            server.process.kill()
            eventually(lambda: (ear.last(STATUS) or {}).get("state") == "offline")
        birth, death = (each.payload for each in ear.on(STATUS))
        assert (birth["state"], death["incarnation"]) == ("online", birth["incarnation"])
        with serving(**settings):
            eventually(lambda: (ear.last(STATUS) or {}).get("state") == "online")
        # Asked to stop, it says so itself.
        farewell = eventually(
            lambda: [each for each in ear.on(STATUS) if each.payload["state"] == "offline"][1:]
        )
        reborn = [each.payload for each in ear.on(STATUS) if each.payload["state"] == "online"][-1]
        assert reborn["incarnation"] > birth["incarnation"]
        assert farewell[-1].payload["incarnation"] == reborn["incarnation"]
        said = " ".join(str(each.payload) for each in ear.heard)
        assert "prompt" not in said.replace("prompt_tokens", "")
