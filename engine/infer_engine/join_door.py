"""The door for replicas of other machines, made of the settings before the fleet is there."""

import asyncio
import functools
import logging
from pathlib import Path

from infer_engine.fleet.joining import Door
from infer_engine.kept_state import KeptState
from infer_engine.model.fingerprint import difference, fingerprint
from infer_engine.model.source import open_source
from infer_engine.model.store import resolve
from infer_engine.replica.curve import KeyFileError, kept_pair, public_file
from infer_engine.replica.key_list import KeyList
from infer_engine.settings import ServerSettings
from infer_engine.sockets import parse_listen
from infer_engine.start_error import StartError

log = logging.getLogger(__name__)

KEY_FILE = "join-key"


async def open_door(settings: ServerSettings, kept: KeptState) -> Door | None:
    """None where nobody may join. StartError when the keys cannot be read or made, SettingsError for a
    malformed address, ModelError."""
    if settings.join_listen is None or settings.join_keys is None:
        return None
    host, port = parse_listen(settings.join_listen.removeprefix("tcp://"), "join_listen")
    if settings.join_key is None and kept.directory is None:
        raise StartError("join_listen: nothing outlives this server, so join_key has to name a file")
    path = Path(settings.join_key) if settings.join_key else (kept.directory or Path()) / KEY_FILE
    try:
        keys, listed = kept_pair(path), KeyList(Path(settings.join_keys))
    except KeyFileError as error:
        raise StartError(str(error)) from error
    ours = await asyncio.to_thread(_fingerprint, settings.replica.model)
    log.info(
        "%d keys may join at %s; the server's public key is in %s",
        len(listed),
        settings.join_listen,
        public_file(path),
    )
    return Door(
        host=host, port=port, keys=keys, listed=listed, difference=functools.partial(difference, ours)
    )


def _fingerprint(model: str) -> dict[str, str]:
    return fingerprint(open_source(resolve(model)))
