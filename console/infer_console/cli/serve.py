"""serve: the engine server alone, in this process's place."""

import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infer_engine.settings import (
    ReplicaSettings,
    ServerSettings,
    SettingsError,
    default_control_socket,
    validate,
)

from infer_console.cli import codes
from infer_console.cli.verb import Verb
from infer_console.toml_file import parse_toml

#: The metavar of a switch; what may be given, and what the setting then is.
ON_OFF = "on|off"
SWITCH = {"on": True, "off": False}
#: The metavar of an option that takes no word.
FLAG = ""
#: Most sequences in the batch of a simulated replica, or in flight at an upstream, where nobody said: its KV
#: memory is what bounds it.
SIMULATED_MAX_RUNNING = 256
#: Option, the setting it sets, its metavar. Defaults, bounds and descriptions are the settings' own.
SERVER_OPTIONS = (
    ("--control", "control", "unix:///path"),
    ("--listen", "listen", "HOST:PORT"),
    ("--replicas", "replicas", "N"),
    ("--launcher", "launcher", "local|inproc|ray"),
    ("--ray-address", "ray_address", "HOST:PORT"),
    ("--simulate", "simulate", "MODEL@N×GPU"),
    ("--speed", "speed", "X"),
    ("--upstream", "upstreams", "KIND+URL"),
    ("--own-replicas", "own_replicas", "N"),
    ("--upstream-stall", "upstream_stall_s", "SECONDS"),
    ("--control-listen", "control_listen", "HOST:PORT"),
    ("--token-file", "token_file", "FILE"),
    ("--tls-cert", "tls_cert", "FILE"),
    ("--tls-key", "tls_key", "FILE"),
    ("--tls-client-ca", "tls_client_ca", "FILE"),
    ("--control-host", "control_hosts", "NAME"),
    ("--control-group", "control_groups", "GROUP=ROLE"),
    ("--name", "name", "NAME"),
    ("--seed", "seed", "N"),
    ("--mqtt", "mqtt", "mqtt://HOST"),
    ("--mqtt-password-file", "mqtt_password_file", "FILE"),
    ("--mqtt-ca", "mqtt_ca", "FILE"),
    ("--otlp", "otlp", "http://HOST:4318"),
    ("--otlp-sample", "otlp_sample", "RATIO"),
    ("--api-keys", "api_keys", "FILE"),
    ("--insecure-no-auth", "insecure_no_auth", FLAG),
    ("--protect-metrics", "protect_metrics", ON_OFF),
    ("--max-connections", "max_connections", "N"),
    ("--max-connections-per-client", "max_connections_per_client", "N"),
    ("--drain-s", "drain_s", "SECONDS"),
    ("--state-dir", "state_dir", "DIR"),
    ("--max-replicas", "max_replicas", "N"),
    ("--join-listen", "join_listen", "tcp://HOST:PORT"),
    ("--join-keys", "join_keys", "FILE"),
    ("--join-key", "join_key", "FILE"),
    ("--replace-stalled", "replace_stalled", ON_OFF),
    ("--rebalance", "rebalance", ON_OFF),
    ("--recorder-mib", "recorder_mib", "N"),
    ("--slo-ttft", "slo_ttft_s", "SECONDS"),
    ("--slo-itl", "slo_itl_s", "SECONDS"),
)
#: Options that may be given several times.
REPEATED = frozenset({"--control-host", "--control-group", "--upstream"})
REPLICA_OPTIONS = (
    ("--model", "model", "M"),
    ("--kv-blocks", "kv_blocks", "N"),
    ("--prefix-cache", "prefix_cache", ON_OFF),
    ("--host-blocks", "host_blocks", "N"),
    ("--preempt-mode", "preempt_mode", "auto|swap|recompute"),
    ("--max-running", "max_running", "N"),
    ("--token-budget", "token_budget", "N"),
    ("--device", "device", "auto|cpu|cuda"),
    ("--dtype", "dtype", "auto|fp32|fp16|bf16"),
    ("--threads", "threads", "N"),
)
#: What the operator typed, for the errors of the process that this one becomes.
CALLED = "infer-console serve"


def _serve(arguments: Namespace) -> int:
    import msgspec

    from infer_console.cli.output import complain
    from infer_console.connect import engine_installed, gateway_installed
    from infer_console.credentials import without_token

    try:
        settings = build_settings(vars(arguments))
    except SettingsError as error:
        complain(str(error))
        return codes.USAGE
    elsewhere = settings.simulate is not None or (settings.upstreams and not settings.own_replicas)
    if not (gateway_installed() if elsewhere else engine_installed()):
        what, extra = ("gateway", "upstream") if elsewhere else ("engine", "engine")
        complain(f"the {what} is not installed here: pip install 'infer-console[{extra}]'")
        return codes.ERROR
    sys.stderr.flush()
    command = [sys.executable, "-m", "infer_engine", "serve"]
    command += ["--settings", msgspec.json.encode(settings).decode(), "--called", CALLED]
    return os.execve(sys.executable, command, without_token(os.environ))


def read_config(path: str) -> dict[str, Any]:
    """A config file: the server's settings by name, a replica's in the table ``replica``. SettingsError when
    it cannot be read; whether the settings fit is for their validator to say."""
    try:
        with Path(path).open("rb") as file:
            return parse_toml(file.read().decode())
    except OSError as error:
        raise SettingsError(f"--config {path}: {error.strerror or error}") from error
    except ValueError as error:  # no TOML, no UTF-8
        raise SettingsError(f"--config {path}: {error}") from error


def build_settings(words: dict[str, Any]) -> ServerSettings:
    """The settings of what was given, options before the config file; raise SettingsError naming the one that
    does not fit."""
    config = read_config(words["config"]) if words.get("config") else {}
    in_file = config.pop("replica", {})
    if not isinstance(in_file, dict):
        raise SettingsError(f"--config {words['config']}: replica is a table: [replica]")
    server = {**config, **_given(SERVER_OPTIONS, words)}
    if words.get("control_groups") is not None:
        server["control_groups"] = _pairs(words["control_groups"])
    replica = {**in_file, **_given(REPLICA_OPTIONS, words)}
    if "simulate" in server or (server.get("upstreams") and not server.get("own_replicas")):
        replica.setdefault("max_running", SIMULATED_MAX_RUNNING)
    server.setdefault("control", default_control_socket())
    try:
        settings: ServerSettings = validate(ServerSettings, {**server, "replica": replica})
    except SettingsError as error:
        raise SettingsError(_in_options(str(error.__cause__ or error), words)) from error
    return settings


def _given(options: tuple[tuple[str, str, str], ...], words: dict[str, Any]) -> dict[str, Any]:
    return {
        name: SWITCH.get(words[name], words[name]) if metavar == ON_OFF else words[name]
        for _, name, metavar in options
        if words.get(name) is not None
    }


def _pairs(given: Sequence[str]) -> dict[str, str]:
    """``GROUP=ROLE`` words, in their order: the first group is the one that owns the socket."""
    pairs: dict[str, str] = {}
    for word in given:
        name, equals, role = word.partition("=")
        if not (name and equals and role):
            raise SettingsError(f"--control-group: {word!r} was given: expected GROUP=ROLE")
        pairs[name] = role
    return pairs


def _in_options(message: str, words: dict[str, Any]) -> str:
    """The validator's message with the option's name in the place of the setting's path."""
    found = re.search(r" - at `\$\.(?:replica\.)?(\w+)`$", message)
    if found is None:
        return message
    name = found.group(1)
    option = next(
        (option for option, setting, _ in SERVER_OPTIONS + REPLICA_OPTIONS if setting == name), None
    )
    why = message[: found.start()]
    if words.get(name) is None and words.get("config"):
        return f"--config {words['config']}: {name}: {why}"
    # Several settings that do not go together: the message names them.
    return why if option is None else f"{option}: {words.get(name)!r} was given: {why}"


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings; options go before it")
    for options, settings_type in ((SERVER_OPTIONS, ServerSettings), (REPLICA_OPTIONS, ReplicaSettings)):
        described = _descriptions(settings_type)
        for option, name, metavar in options:
            text, default = described[name]
            switch = metavar == ON_OFF
            if switch:
                default = next(word for word, value in SWITCH.items() if value == default)
            shown = f" (default {default})" if default is not None else ""
            if metavar == FLAG:
                parser.add_argument(option, dest=name, action="store_true", default=None, help=text)
                continue
            if option in REPEATED:
                parser.add_argument(
                    option, dest=name, action="append", metavar=metavar, help=f"{text}; once for each"
                )
                continue
            parser.add_argument(
                option,
                dest=name,
                metavar=metavar,
                choices=tuple(SWITCH) if switch else None,
                help=(text + shown).replace("%", "%%"),
            )


def _descriptions(settings_type: type[Any]) -> dict[str, tuple[str, object]]:
    """Of each setting: what it is, and its default."""
    import msgspec

    known: dict[str, tuple[str, object]] = {}
    for field in msgspec.structs.fields(settings_type):
        metas = [meta for meta in getattr(field.type, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
        text = next((meta.description for meta in metas if meta.description), "")
        default = None if field.default is msgspec.NODEFAULT else field.default
        known[field.name] = text, default
    return known


VERBS = (
    Verb(
        name="serve",
        help="run the engine server alone",
        arguments=_arguments,
        run=_serve,
        connects=False,
    ),
)
