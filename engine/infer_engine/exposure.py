"""What may be reached from where: a listener that others can reach needs to know who they are."""

import ipaddress

from infer_engine.settings import SettingsError


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on ``host``; any name but ``localhost`` may be
    anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_gateway(host: str, *, has_keys: bool, insecure_no_auth: bool) -> None:
    """SettingsError where everybody could send requests without anybody having said so."""
    if is_loopback(host) or has_keys or insecure_no_auth:
        return
    raise SettingsError(
        f"listen: {host} can be reached from other machines, and without API keys everybody there may send "
        "requests; listen on 127.0.0.1, give API keys, or say --insecure-no-auth"
    )
