"""Where clients and operators come in, and who may: bound and read before anything slow starts."""

from pathlib import Path
from typing import NamedTuple

from infer_engine.control.doors import Admission, admission
from infer_engine.control.token_file import TokenFileError
from infer_engine.exposure import check_gateway
from infer_engine.gateway.keys import Keyring, KeysError
from infer_engine.settings import ServerSettings, default_control_socket
from infer_engine.sockets import ListenError, Sockets, open_sockets, parse_listen
from infer_engine.start_error import StartError


class Entrance(NamedTuple):
    sockets: Sockets
    admitted: Admission
    keyring: Keyring | None


def open_entrance(settings: ServerSettings, *, listen_is_default: bool) -> Entrance:
    """SettingsError when it would be open to whom it must not be, StartError when it cannot be opened."""
    keyring = _keyring(settings)
    try:
        admitted = admission(settings)
        sockets = open_sockets(
            settings.control or default_control_socket(),
            settings.listen,
            or_free_port=listen_is_default,
            control_listen=settings.control_listen,
            control_group=admitted.socket_group,
        )
    except ListenError as error:
        raise StartError(str(error), error.setting) from error
    except TokenFileError as error:
        raise StartError(str(error)) from error
    return Entrance(sockets, admitted, keyring)


def _keyring(settings: ServerSettings) -> Keyring | None:
    """SettingsError when the gateway would be open to other machines, StartError when the keys cannot be
    read."""
    host, _ = parse_listen(settings.listen)
    has_keys = settings.api_keys is not None
    check_gateway(host, has_keys=has_keys, insecure_no_auth=settings.insecure_no_auth)
    if settings.api_keys is None:
        return None
    try:
        return Keyring(Path(settings.api_keys))
    except KeysError as error:
        raise StartError(f"api_keys: {error}") from error
