"""Every setting once, with its unit, bounds and default.

The command line, the config file and the control API all read this table; a value out of bounds is
refused with the setting's name, what was given and what is allowed.
"""

import hashlib
import os
import re
from typing import Annotated, Any, Literal

import msgspec
import platformdirs
from msgspec import Meta, Struct

from infer_engine.foreign.address import parse_address
from infer_engine.planner import Deployment, PlanError, parse_deployment
from infer_engine.protocol import PreemptChoice
from infer_engine.settings_rules import DEFAULT_REPLICAS, MOST_PROCESSES, check_together

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "fp32", "fp16", "bf16"]
Launcher = Literal["local", "inproc", "ray"]

#: The name by which the bundled default model is asked for.
DEFAULT_MODEL = "smollm2-135m-instruct"
MOST_SIMULATED = 1024


class ReplicaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one replica needs to know. Sent to its process as JSON."""

    model: Annotated[
        str, Meta(description="the default model's name, a GGUF file, or a Hugging Face directory")
    ] = DEFAULT_MODEL
    block_size: Annotated[int, Meta(ge=1, le=256, description="tokens per KV block")] = 16
    kv_blocks: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None,
        Meta(description="KV blocks per replica; unset: half of what fits, at most 1024 (GPU: 9/10, 32768)"),
    ] = None
    max_running: Annotated[int, Meta(ge=1, le=4096, description="most sequences in the batch")] = 32
    token_budget: Annotated[
        Annotated[int, Meta(ge=1, le=65536)] | None,
        Meta(description="most tokens computed per step; unset: 128 on CPU, 2048 on CUDA, or max_running"),
    ] = None
    max_waiting: Annotated[
        int, Meta(ge=0, le=1_000_000, description="most requests in a replica's queue")
    ] = 1024
    max_waiting_tokens: Annotated[
        int, Meta(ge=0, description="most tokens in a replica's queue; an empty queue takes any request")
    ] = 10_000_000
    age_steps: Annotated[
        int, Meta(ge=1, description="steps after which a waiting batch request goes before interactive ones")
    ] = 2000
    admit_limit_ratio: Annotated[
        float, Meta(gt=0, le=1, description="share of the pool up to which interactive requests are admitted")
    ] = 0.90
    batch_limit_ratio: Annotated[
        float, Meta(gt=0, le=1, description="share of the pool up to which batch requests are admitted")
    ] = 0.65
    max_passes: Annotated[
        int,
        Meta(ge=0, le=10_000, description="how often smaller requests may pass a blocked head of the queue"),
    ] = 8
    long_prefill_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="a prompt with more tokens to compute is long; unset: four times the token budget"),
    ] = None
    max_long_prefills: Annotated[
        int, Meta(ge=1, le=4096, description="most long prompts that prefill at once")
    ] = 1
    prefix_cache: Annotated[
        bool, Meta(description="keep the KV of finished requests for others that begin with the same tokens")
    ] = True
    host_blocks: Annotated[
        int,
        Meta(ge=0, le=10_000_000, description="KV blocks in host memory for preempted sequences; 0: none"),
    ] = 128
    preempt_mode: Annotated[
        PreemptChoice, Meta(description="how to preempt; auto: swap or recompute, the cheaper of the two")
    ] = "auto"
    recompute_tokens_per_s: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="tokens that prefill computes per second, for that choice; unset: measured"),
    ] = None
    swap_bytes_per_s: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="bytes moved to or from host memory per second, for that choice; unset: measured"),
    ] = None
    device: Annotated[Device, Meta(description="auto takes CUDA where there is a GPU")] = "auto"
    dtype: Annotated[
        Dtype, Meta(description="auto: fp16 weights on CPU, bf16 or fp16 on CUDA; fp32: the reference path")
    ] = "auto"
    threads: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        Meta(description="compute threads per replica; unset: cores divided by replicas"),
    ] = None
    # Set by whoever starts several replicas on one machine; not a flag.
    sharers: Annotated[int, Meta(ge=1, description="replicas that share this machine's memory")] = 1

    def starting_token_budget(self, device: str) -> int:
        """Tokens per step where nobody said: a CPU computes a few hundred a second, and everyone who decodes
        waits for the whole step."""
        if self.token_budget is not None:
            return self.token_budget
        return max(self.max_running, 128 if device == "cpu" else 2048)

    def __post_init__(self) -> None:
        if self.token_budget is not None and self.token_budget < self.max_running:
            raise ValueError(
                f"token_budget is {self.token_budget}; it must be at least max_running ({self.max_running}), "
                "so that every decoding sequence gets its token in every step"
            )


class Upstream(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server of somebody else as it is named in the config file, where it has a key of its own."""

    url: Annotated[str, Meta(max_length=300)]
    #: Environment variable with the key, or the file (mode 0600) whose first line it is.
    token_env: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")] | None = None
    token_file: str | None = None
    #: Send the key over plain HTTP to another machine, too.
    token_over_http: bool = False

    def __post_init__(self) -> None:
        parse_address(self.url)
        if self.token_env is not None and self.token_file is not None:
            raise ValueError("token_env and token_file were given: one of them is the key's place")


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the engine server needs to know, the replicas' settings included."""

    name: Annotated[str, Meta(min_length=1, max_length=64, description="the fleet's name on the console")] = (
        "local"
    )
    control: Annotated[str | None, Meta(description="unix:///path of the control API's socket")] = None
    listen: Annotated[str, Meta(description="HOST:PORT of the OpenAI gateway; port 0 takes a free one")] = (
        "127.0.0.1:8000"
    )
    control_listen: Annotated[
        str | None, Meta(description="HOST:PORT where the control API listens too; needs a token file")
    ] = None
    token_file: Annotated[
        str | None, Meta(description="who may call the control API; SIGHUP reads it again")
    ] = None
    tls_cert: Annotated[str | None, Meta(description="certificate chain (PEM) of the control listener")] = (
        None
    )
    tls_key: Annotated[str | None, Meta(description="private key (PEM) of that certificate")] = None
    tls_client_ca: Annotated[
        str | None,
        Meta(description="CA (PEM) of client certificates; the token file says which names have which role"),
    ] = None
    control_hosts: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9.:_\[\]-]{1,253}$")], ...],
        Meta(max_length=64, description="a name by which the control listener may be called"),
    ] = ()
    control_groups: Annotated[
        dict[str, str],
        Meta(max_length=16, description="what members of a group may do over the control socket"),
    ] = {}
    replicas: Annotated[
        int, Meta(ge=0, le=MOST_SIMULATED, description="replicas, at most 64 unless simulated")
    ] = DEFAULT_REPLICAS
    launcher: Annotated[
        Launcher | None,
        Meta(
            description="local: a process each; ray: on the nodes of a Ray cluster; inproc: simulated, in "
            "the server's process"
        ),
    ] = None
    ray_address: Annotated[
        Annotated[str, Meta(max_length=300, pattern=r"^(auto|\[?[A-Za-z0-9.:_-]+\]?:\d{1,5})$")] | None,
        Meta(
            description="HOST:PORT of the Ray cluster's head, with launcher ray; unset: RAY_ADDRESS, or "
            "auto, the cluster that this machine is a node of"
        ),
    ] = None
    simulate: Annotated[
        Annotated[str, Meta(max_length=100)] | None,
        Meta(
            description="MODEL@N×GPU (or NxGPU), such as llama-70b@4×h100: simulate replicas of that model, "
            "each on N of those GPUs"
        ),
    ] = None
    upstreams: Annotated[
        tuple[str | Upstream, ...],
        Meta(
            max_length=MOST_PROCESSES,
            description="vllm+http://HOST:PORT (or sglang+, llamacpp+, auto+) of a server of somebody else "
            "that takes the place of a replica",
        ),
    ] = ()
    own_replicas: Annotated[
        int, Meta(ge=0, le=MOST_PROCESSES, description="replicas of our engine beside upstreams")
    ] = 0
    upstream_stall_s: Annotated[
        float,
        Meta(gt=0, le=3600, description="an upstream that makes no progress for so many seconds has stalled"),
    ] = 30.0
    state_dir: Annotated[
        Annotated[str, Meta(max_length=4096)] | None,
        Meta(
            description="directory in which drained and fenced replicas, limits, tenants and scale outlive "
            "the server; unset: one per control socket in the user's state directory (simulated: none)"
        ),
    ] = None
    max_replicas: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        Meta(description="most replicas that scale and fence may lead to; unset: twice replicas, at least 4"),
    ] = None
    join_listen: Annotated[
        Annotated[str, Meta(max_length=300)] | None,
        Meta(description="[tcp://]HOST:PORT where replicas of other machines may join; needs join_keys"),
    ] = None
    join_keys: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="file (mode 0600) of the public keys of replicas that may join; read again by itself"
        ),
    ] = None
    join_key: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="file of the server's own secret key, made where missing, its public one beside it "
            "in FILE.pub; unset: join-key in the state directory"
        ),
    ] = None
    replace_stalled: Annotated[
        bool, Meta(description="end and restart a replica that makes no progress though it has work")
    ] = True
    rebalance: Annotated[
        bool, Meta(description="move requests that wait beside room on another replica there")
    ] = True
    speed: Annotated[
        float, Meta(ge=0.01, le=1000, description="simulated seconds per real second, with --simulate")
    ] = 1.0
    mqtt: Annotated[
        Annotated[str, Meta(max_length=300)] | None,
        Meta(description="mqtt[s]://[USER@]HOST[:PORT] of a broker that status, telemetry and events go to"),
    ] = None
    mqtt_password_file: Annotated[
        str | None, Meta(description="file whose first line is the password at the MQTT broker")
    ] = None
    mqtt_ca: Annotated[
        str | None, Meta(description="PEM file of the only certificates that the MQTT broker may show")
    ] = None
    otlp: Annotated[
        Annotated[str, Meta(max_length=1000)] | None,
        Meta(
            description="http(s)://HOST:4318 of a collector that every request goes to as a trace (OTLP/HTTP)"
        ),
    ] = None
    otlp_sample: Annotated[
        float, Meta(ge=0, le=1, description="share of them, where a client's traceparent does not decide")
    ] = 1.0
    api_keys: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="file of API keys (mode 0600); given, the gateway asks for one"),
    ] = None
    insecure_no_auth: Annotated[
        bool, Meta(description="listen where other machines reach the gateway, without API keys")
    ] = False
    protect_metrics: Annotated[bool, Meta(description="ask for an API key on /metrics too")] = False
    max_connections: Annotated[
        int, Meta(ge=1, le=100_000, description="most client connections of the gateway")
    ] = 4096
    max_connections_per_client: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Meta(description="most of them from one address; unset: three quarters"),
    ] = None
    drain_s: Annotated[
        float,
        Meta(ge=0, le=86_400, description="how long requests may go on after SIGTERM: TimeoutStopSec - 5"),
    ] = 25.0
    replica: ReplicaSettings = ReplicaSettings()
    recorder_mib: Annotated[
        int, Meta(ge=0, le=4096, description="memory of the flight recorder in MiB; 0 records nothing")
    ] = 64
    slo_ttft_s: Annotated[
        Annotated[float, Meta(gt=0, le=86_400)] | None,
        Meta(description="promised 99th percentile of TTFT in seconds: shown beside what is"),
    ] = None
    slo_itl_s: Annotated[
        Annotated[float, Meta(gt=0, le=3_600)] | None,
        Meta(description="promised 99th percentile of ITL in seconds, such as 0.08"),
    ] = None
    seed: Annotated[int, Meta(description="seed of what the server itself draws (ids, test traffic)")] = 0

    def __post_init__(self) -> None:
        check_together(self)

    @property
    def upstream_ids(self) -> frozenset[str]:
        """The replicas that are servers of others: the first ones, in the order in which these are named."""
        return frozenset(f"r{number}" for number in range(len(self.upstreams)))

    def launcher_of(self, replica: str) -> Launcher | Literal["upstream"]:
        if replica in self.upstream_ids:
            return "upstream"
        return self.launcher or ("inproc" if self.simulate is not None else "local")

    @property
    def upstream_urls(self) -> list[str]:
        return [each if isinstance(each, str) else each.url for each in self.upstreams]

    @property
    def most_replicas(self) -> int:
        """Those fenced included."""
        bound = MOST_PROCESSES if self.simulate is None else MOST_SIMULATED
        return min(bound, self.max_replicas or max(4, 2 * self.replicas))

    @property
    def deployment(self) -> Deployment | None:
        """What is simulated, None where nothing is. PlanError (a ValueError) when the model or the GPU is not
        known, or one does not fit the other."""
        if self.simulate is None:
            return None
        deployment = parse_deployment(self.simulate)
        if deployment.kv_blocks(self.replica.block_size) < 1:
            raise PlanError(f"{deployment} leaves no room for one KV block")
        return deployment


class SettingsError(ValueError):
    """A setting was refused. ``str()`` says which, what was given and what is allowed."""


def validate(settings_type: type[Any], values: dict[str, Any]) -> Any:
    """Build a settings struct from plain values; raise SettingsError naming the offending setting."""
    try:
        return msgspec.convert(values, settings_type, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{error} (given: {values!r})") from error


def default_control_socket(name: str = "default") -> str:
    """``unix://`` URL of the control socket of an engine server started without ``--control``."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/infer-console-{os.getuid()}"
    return f"unix://{runtime}/infer-console/{name}.sock"


def default_state_dir(control_url: str) -> str:
    """Where a server whose control socket is at ``control_url`` keeps what outlives it: in the user's state
    directory, one for each socket."""
    words = re.sub(r"[^a-z0-9]+", "-", control_url.removeprefix("unix://").lower()).strip("-")
    digest = hashlib.sha256(control_url.encode()).hexdigest()[:12]
    return str(platformdirs.user_state_path("infer-console") / "servers" / f"{words[-40:]}-{digest}")
