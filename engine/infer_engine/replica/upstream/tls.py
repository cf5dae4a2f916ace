"""What a server has to prove over https: by the authorities that this machine trusts."""

import ssl
from functools import cache


@cache
def trusted() -> ssl.SSLContext:
    """Reading the authorities takes longer than a look at a server: once."""
    return ssl.create_default_context()


def proof_of(base_url: str) -> ssl.SSLContext | bool:
    """For httpx2's ``verify``: nothing where nothing is encrypted."""
    return trusted() if base_url.startswith("https:") else False
