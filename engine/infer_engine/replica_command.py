"""``python -m infer_engine replica``: a replica of this machine joins a server's fleet by itself."""

import logging
import re
import socket
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import platformdirs

from infer_engine.settings import ReplicaSettings, SettingsError, validate

#: Of the server's settings, what this machine may have otherwise.
OWN_SETTINGS = ("model", "device", "threads", "kv_blocks")
_ENDPOINT = re.compile(r"(?:tcp://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", re.ASCII)
MOST_DRAIN_S = 3_600.0


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--join", metavar="tcp://HOST:PORT", help="where the server takes replicas")
    parser.add_argument("--server-key", metavar="FILE", type=Path, help="the server's public key")
    parser.add_argument("--key", metavar="FILE", type=Path, help="this replica's own secret key; made if new")
    parser.add_argument("--public-key", action="store_true", help="print the public key of --key and end")
    parser.add_argument("--id", metavar="ID", help="what it is to be called in the fleet")
    parser.add_argument("--model", metavar="M", help="the fleet's model, where this machine has it")
    parser.add_argument("--device", metavar="auto|cpu|cuda", help="what it computes on")
    parser.add_argument("--threads", metavar="N", help="compute threads")
    parser.add_argument("--kv-blocks", metavar="N", help="KV blocks")
    parser.add_argument(
        "--drain-s", metavar="SECONDS", type=float, default=25.0, help="how long leaving may take"
    )


def run(options: Namespace) -> int:
    from infer_engine.replica.curve import KeyFileError, kept_pair, read_public_key
    from infer_engine.replica.joiner import Joiner, JoinFailedError, JoinOptions
    from infer_engine.replica.messages import LinkKeys
    from infer_engine.telemetry.logs import configure_logging

    try:
        pair = kept_pair(options.key or platformdirs.user_state_path("infer-console") / "replica-key")
        if options.public_key:
            sys.stdout.write(f"{pair.public.hex()}\n")
            return 0
        if options.join is None or options.server_key is None:
            return _complain("--join and --server-key are needed", 2)
        endpoint = _endpoint(options.join)
        own = _own_settings(options)
        if not 0 <= options.drain_s <= MOST_DRAIN_S:
            raise SettingsError(f"--drain-s: {options.drain_s:g} was given: 0 to {MOST_DRAIN_S:g} is allowed")
        server = read_public_key(options.server_key)
    except KeyFileError as error:
        return _complain(str(error), 1)
    except SettingsError as error:
        return _complain(str(error), 2)
    configure_logging(logging.WARNING)
    _say(f"this replica's public key is {pair.public.hex()}")
    join = JoinOptions(
        endpoint=endpoint,
        keys=LinkKeys(server=server.hex(), public=pair.public.hex(), secret=pair.secret.hex(), ticket=""),
        host=socket.gethostname(),
        replica=options.id,
        drain_s=options.drain_s,
        model=own.model if options.model is not None else None,
        device=own.device if options.device is not None else None,
        threads=own.threads,
        kv_blocks=own.kv_blocks,
    )
    try:
        return Joiner(join, _say).run()
    except JoinFailedError as error:
        return _complain(str(error), 1)


def _endpoint(given: str) -> str:
    found = _ENDPOINT.fullmatch(given)
    if found is None or not 0 < int(found[2]) < 65536:
        raise SettingsError(f"--join: {given!a} was given: expected tcp://HOST:PORT")
    return f"tcp://{found[1]}:{found[2]}"


def _own_settings(options: Namespace) -> ReplicaSettings:
    given = {name: getattr(options, name) for name in OWN_SETTINGS if getattr(options, name) is not None}
    try:
        settings: ReplicaSettings = validate(ReplicaSettings, given)
    except SettingsError as error:
        raise SettingsError(f"{error.__cause__ or error}") from error
    return settings


def _say(what: str) -> None:
    sys.stderr.write(f"infer-engine: {what}\n")
    sys.stderr.flush()


def _complain(what: str, code: int) -> int:
    _say(what)
    return code
