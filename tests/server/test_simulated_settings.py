"""What may be asked of a simulated fleet, and what is said of anything else."""

from typing import Any

import pytest
from infer_console.cli.serve import SIMULATED_MAX_RUNNING, build_settings
from infer_engine.fleet.views import served_model
from infer_engine.planner import MODELS, parse_deployment
from infer_engine.settings import SettingsError


def test_a_simulated_fleet() -> None:
    words = {"simulate": "llama-70b@4×h100", "speed": "8", "replicas": "256", "control": "unix:///tmp/x.sock"}
    settings = build_settings(words)
    assert settings.deployment == parse_deployment("llama-3.1-70b@4×h100")
    assert (settings.speed, settings.replicas, served_model(settings)) == (8.0, 256, "llama-3.1-70b")
    assert settings.replica.max_running == SIMULATED_MAX_RUNNING
    assert build_settings({**words, "max_running": "7"}).replica.max_running == 7
    assert build_settings({**words, "launcher": "inproc"}).launcher == "inproc"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"simulate": "70b@1×h100"}, "80.0 GB of memory, 140.0 GB of weights, 5.0 GB of activations"),
        ({"simulate": "gpt-9@4×h100"}, "no model 'gpt-9' is known here: 70b, 8b, "),
        ({"simulate": "70b@4×abacus"}, "no GPU 'abacus' is known here: h100, "),
        ({"simulate": "70b"}, "MODEL@N×GPU wanted, such as 70b@4×h100"),
        ({"simulate": "70b@4×h100", "speed": "0"}, "--speed: '0' was given"),
        ({"simulate": "70b@4×h100", "launcher": "local"}, "simulated replicas are launched inproc"),
        ({"simulate": "70b@4×h100", "device": "cpu"}, "device is cpu; simulated replicas have that of what"),
        ({"simulate": "70b@4×h100", "dtype": "fp32"}, "dtype is fp32; simulated replicas have that of what"),
        ({"launcher": "inproc"}, "launcher is inproc, which is for simulated replicas"),
        ({"speed": "4"}, "speed is 4, which is for simulated replicas"),
        ({"token_budget": "8", "max_running": "9"}, "token_budget is 8; it must be at least max_running (9)"),
        ({"ray_address": "10.0.0.1:6379"}, "ray_address is for launcher ray, which is not given"),
        ({"replicas": "65"}, "at most 64 are allowed unless they are simulated"),
        ({"simulate": "70b@4×h100", "replicas": "1025"}, "--replicas: '1025' was given"),
    ],
)
def test_what_does_not_go_is_named(words: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        build_settings({"control": "unix:///tmp/x.sock", **words})
    assert said in str(refused.value)
    assert "None was given" not in str(refused.value)


def test_every_model_fits_some_gpus() -> None:
    for name in MODELS:
        assert parse_deployment(f"{name}@16xh200").kv_blocks(16) > 1_000
