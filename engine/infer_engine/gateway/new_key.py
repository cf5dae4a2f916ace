"""Making an API key: it is shown once, the file keeps only its digest."""

import secrets
from pathlib import Path

import msgspec

from infer_engine.gateway.keys import PREFIX, ApiKey, KeysError, digest_of, parse_keys
from infer_engine.secret_file import SecretFileError, read_secret_file, write_secret_file

SECRET_BYTES = 32
_HEAD = "# API keys of the gateway; it reads this file when it starts and on SIGHUP.\n"


def new_secret(key_id: str) -> str:
    """A key of 256 random bits; ``key_id`` in it tells people which one it is."""
    return f"{PREFIX}_{key_id}_{secrets.token_urlsafe(SECRET_BYTES)}"


def add_key(path: Path, key: ApiKey) -> None:
    """Write ``key`` behind those in the file, which is made where there is none; its comments stay. KeysError
    when the file cannot be used, is JSON, or has a key of that id."""
    try:
        present = read_secret_file(path) if path.exists() or path.is_symlink() else _HEAD.encode()
        if present.lstrip().startswith(b"{"):
            raise KeysError(f"{path}: is JSON; keys are only added to TOML")
        wanted = present.rstrip(b"\n") + b"\n" + entry(key).encode()
        parse_keys(wanted, str(path))
        write_secret_file(path, wanted)
    except SecretFileError as error:
        raise KeysError(str(error)) from None


def make_key(path: Path, key_id: str, tenant: str, **others: object) -> str:
    """The new key, in the file already; ``others`` are further fields of it. KeysError, also for a field that
    does not fit."""
    secret = new_secret(key_id)
    fields = {name: value for name, value in others.items() if value is not None}
    try:
        key = msgspec.convert({"id": key_id, "tenant": tenant, "sha256": digest_of(secret), **fields}, ApiKey)
    except msgspec.ValidationError as error:
        raise KeysError(str(error)) from None
    add_key(path, key)
    return secret


def entry(key: ApiKey) -> str:
    """Names and digests hold nothing that TOML would need escaped."""
    lines = [f'id = "{key.id}"', f'sha256 = "{key.sha256}"', f'tenant = "{key.tenant}"']
    lines += [f'tier = "{key.tier}"'] if key.tier is not None else []
    lines += [f"concurrency = {key.concurrency}"] if key.concurrency is not None else []
    lines += [f"expires = {key.expires.isoformat(timespec='seconds')}"] if key.expires is not None else []
    return "\n[[keys]]\n" + "".join(f"{line}\n" for line in lines)
