"""The operator's token: from a file or an environment variable that is named, never from an argument or a
URL, where others could read it."""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

TOKEN_VARIABLE = "INFER_CONSOLE_TOKEN"
FILE_VARIABLE = "INFER_CONSOLE_TOKEN_FILE"
#: The token of the lease that the caller holds, as ``infer-console lease take`` printed it: no secret.
LEASE_VARIABLE = "INFER_CONSOLE_LEASE"
MAX_TOKEN_BYTES = 256
#: What a header can carry, and what every token is made of.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,256}")


class CredentialError(ValueError):
    """There is no token where one was said to be; ``str()`` never holds it."""


def read_token(*, token_file: str | None, token_env: str | None, environ: Mapping[str, str]) -> str | None:
    """The token of the file, else of the variable; None when neither was named."""
    if token_file is not None:
        try:
            path = Path(token_file).expanduser()
        except RuntimeError as error:  # whose home is not known
            raise CredentialError(f"token file {token_file}: {error}") from error
        return _from_file(path)
    if token_env is not None:
        if not environ.get(token_env):
            raise CredentialError(f"token-env: the environment variable {token_env} is not set")
        return _checked(environ[token_env], token_env)
    return None


def token_of_environment(environ: Mapping[str, str]) -> str | None:
    """For a server that was named without a context."""
    named = environ.get(FILE_VARIABLE) or None
    variable = TOKEN_VARIABLE if environ.get(TOKEN_VARIABLE) else None
    return read_token(token_file=named, token_env=variable, environ=environ)


def without_token(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process that we start."""
    return {name: value for name, value in environ.items() if name != TOKEN_VARIABLE}


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise CredentialError(f"token file {path}: it is not a regular file")
            if info.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise CredentialError(f"token file {path}: others may read it; chmod 600 it")
            content = file.read(MAX_TOKEN_BYTES + 2)
    except OSError as error:
        raise CredentialError(f"token file {path}: {error.strerror or error}") from error
    return _checked(content.decode("ascii", "replace"), f"token file {path}")


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise CredentialError(f"{where}: that is no token; expected one line like icp_<id>_<secret>")
    return token
