"""What may be reached from where: a listener that others can reach needs to know who they are."""

import ipaddress

from infer_engine.settings import SettingsError


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on ``host``; any other name than ``localhost`` may be
    anywhere."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_gateway(host: str, *, has_keys: bool, insecure_no_auth: bool) -> None:
    """SettingsError where everybody could send requests without having been told so."""
    if is_loopback(host) or has_keys or insecure_no_auth:
        return
    raise SettingsError(
        f"listen: {host} can be reached from other machines, and without API keys everybody there may send "
        "requests; listen on 127.0.0.1, give API keys (--api-keys FILE), or say --insecure-no-auth"
    )


def check_control(host: str, *, has_tokens: bool, has_tls: bool) -> None:
    """SettingsError where the control API would be open, or secrets would travel in the clear. There is no
    switch that overrides it."""
    if not has_tokens:
        raise SettingsError(
            "control_listen: the control API listens on TCP only with a token file (--token-file FILE; "
            "infer-console token new makes one)"
        )
    if not has_tls and not is_loopback(host):
        raise SettingsError(
            f"control_listen: {host} can be reached from other machines, where tokens would travel in the "
            "clear; give --tls-cert and --tls-key, or listen on 127.0.0.1"
        )
