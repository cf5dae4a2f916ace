"""A fleet whose replicas are servers of somebody else: what takes their place in it, and nothing else, is
different."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.replica_process import Launch, ReplicaProcess
from infer_engine.fleet.spec_file import SpecDir
from infer_engine.foreign.address import Address, parse_address
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.replica.beside_upstreams import beside
from infer_engine.replica.launch_local import launch as launch_local
from infer_engine.replica.messages import ReplicaConfig
from infer_engine.replica.server_link import ServerLink
from infer_engine.replica.upstream.launch import UpstreamReplicas
from infer_engine.replica.upstream.life import LOOK_S
from infer_engine.replica.upstream.target import Target
from infer_engine.secret_file import SecretFileError, read_secret_file
from infer_engine.settings import ServerSettings, Upstream

#: Where the key of all upstreams is that have none of their own.
TOKEN = "INFER_UPSTREAM_TOKEN"
MOST_TOKEN_CHARS = 4096


class UpstreamError(Exception):
    """The upstreams cannot be served as they are named: ``str()`` says which, and why."""


def upstream_fleet(
    settings: ServerSettings,
    tokenizer: Tokenizer,
    context_length: int,
    *,
    own_ports: frozenset[int] = frozenset(),
    environment: Mapping[str, str] = os.environ,
    run_dir: Path | None = None,
    spec_dir: SpecDir | None = None,
    look_s: float = LOOK_S,
    launch_own: Launch = launch_local,
) -> Fleet:
    """``settings.upstreams`` names them, and ``launch_own`` starts ``settings.own_replicas`` beside them;
    ``tokenizer`` is that of the model that all of them serve, and ``own_ports`` are those of this machine at
    which this server listens itself. To be called in a running loop. UpstreamError."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells every request, looks included
    targets: dict[str, Target] = {}
    for number, each in enumerate(settings.upstreams):
        upstream = Upstream(url=each) if isinstance(each, str) else each
        address = parse_address(upstream.url)
        if address.is_loopback and address.port in own_ports:
            raise UpstreamError(f"{address.place} is this gateway itself: a request would go round for ever")
        token = _token(upstream, address, environment)
        targets[f"r{number}"] = Target(address, context_length, token)
    settings = structs.replace(settings, replicas=len(targets) + settings.own_replicas)
    replicas = UpstreamReplicas(targets, tokenizer, settings.upstream_stall_s, look_s)
    if not settings.own_replicas:
        return Fleet(settings, run_dir=run_dir, launch=replicas.launch, link=replicas.link, spec_dir=spec_dir)

    async def launch(config: ReplicaConfig, log_path: Path, threads: int) -> ReplicaProcess:
        theirs = config.replica in targets
        return await (replicas.launch if theirs else launch_own)(config, log_path, threads)

    link = beside(replicas, ServerLink)
    return Fleet(settings, run_dir=run_dir, launch=launch, link=link, spec_dir=spec_dir)


def _token(upstream: Upstream, address: Address, environment: Mapping[str, str]) -> str | None:
    where, token = _found(upstream, environment)
    if token is None:
        return None
    if not token.isascii() or not token.isprintable() or not 0 < len(token) <= MOST_TOKEN_CHARS:
        raise UpstreamError(f"{where}: the key of {address.place} is no usable key")
    if not address.is_secret_safe and not upstream.token_over_http:
        raise UpstreamError(
            f"the key of {address.place} ({where}) would be read by anybody on the way: use https, or say "
            "token_over_http = true of this upstream in the config file"
        )
    return token


def _found(upstream: Upstream, environment: Mapping[str, str]) -> tuple[str, str | None]:
    if upstream.token_file is not None:
        try:
            lines = read_secret_file(Path(upstream.token_file)).decode("utf-8", "replace").splitlines()
        except SecretFileError as error:
            raise UpstreamError(str(error)) from error
        return upstream.token_file, lines[0].strip() if lines else ""
    if upstream.token_env is not None:
        if upstream.token_env not in environment:
            raise UpstreamError(f"the key of {upstream.url}: {upstream.token_env} is not set")
        return upstream.token_env, environment[upstream.token_env].strip()
    return TOKEN, (environment.get(TOKEN) or "").strip() or None
