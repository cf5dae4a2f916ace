"""Takes the names out of a recording: what is left may be shown to people who may not see whose requests
these were.

Request ids and tenants become hashes that are equal within one file and mean nothing outside of it. Names
that clients gave to their requests are left out. Prompts and generated text are in no recording.
"""

import hashlib
import re
import secrets
from typing import Any, cast

import msgspec
from infer_engine.protocol import Envelope

#: Strings that are words of the protocol, or names that operators chose for machines and people.
_PLAIN = frozenset(
    (
        *("type", "kind", "state", "phase", "tier", "health", "mode", "waiting_reason", "finish_reason"),
        *("epoch", "version", "server_version", "name", "model", "device", "dtype", "deployment", "uuid"),
        *("replica", "to_replica", "operation", "actor", "profile", "url", "field", "code"),
    )
)
_REQUESTS = frozenset(("request", "behind"))
_REQUEST_LISTS = frozenset(("removed", "order", "owners", "blocked_by", "admitted"))
_ENDED_LISTS = frozenset(("finished", "preempted"))
#: What a request's row has and nothing else.
_ROW_FIELDS = frozenset(("id", "tenant", "prompt_tokens"))
#: Words of free text: names that are known are looked up, and what looks like an id is taken for one.
_WORD = re.compile(r"[\w.@:/-]+")
_ID = re.compile(r"[0-9a-f]{6,64}|[\w-]*[0-9a-f]{12,}")
#: Of a record of the audit.
_RECORD = ("number", "ts", "verb", "stage", "outcome", "dry_run", "duration_ms")
#: A name that says nothing about anybody.
DEFAULT_TENANT = "default"

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()
_envelopes = msgspec.json.Decoder(Envelope)


class Redactor:
    """One per file: names are hashed with a key that is thrown away with it."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)
        self._names: dict[str, str] = {"": "", DEFAULT_TENANT: DEFAULT_TENANT}
        self._replicas: set[str] = {"fleet"}

    def envelope(self, envelope: Envelope) -> Envelope:
        return _envelopes.decode(self.line(_encoder.encode(envelope)))

    def line(self, line: bytes) -> bytes:
        """One message as JSON."""
        plain = _decoder.decode(line)
        delta = plain.get("delta", {})
        if isinstance(delta, dict) and isinstance(replica := delta.get("replica"), str):
            self._replicas.add(replica)
        return _encoder.encode(self._walk(plain))

    def aside(self, line: bytes) -> bytes:
        """One aside as JSON."""
        plain = _decoder.decode(line)
        if plain.get("aside") == "audit":
            return _encoder.encode({"aside": "audit", "record": self._record(plain["record"])})
        return _encoder.encode(self._walk(plain))

    def _record(self, record: dict[str, Any]) -> dict[str, Any]:
        """Who did or tried what, and how it ended; not from where, nor with which parameters. Without its
        hash: it is not what was written."""
        actor, target = (_part(record, name) for name in ("actor", "target"))
        told = {name: record[name] for name in _RECORD if name in record}
        told["actor"] = {name: actor.get(name) for name in ("subject", "role", "auth_method")}
        kind, id = str(target.get("kind", "")), str(target.get("id", ""))
        told["target"] = {"kind": kind, "id": self._audited(kind, id)}
        told["reason"] = self.text(str(record.get("reason", "")))
        return told

    def _audited(self, kind: str, id: str) -> str:
        match kind:
            case "replica" | "fleet":
                return id
            case "request":  # those whose text was read, in one record
                return ",".join(self.request(each) for each in id.split(","))
            case "tenant":
                return self.tenant(id)
            case "requests":  # an expression that may name anything
                return "a selection"
            case "path":
                return self._path(id)
            case _:
                return self.text(id)

    def _path(self, path: str) -> str:
        """Of an attempt that never came to a command."""
        parts = path.split("/")
        for at, before in enumerate(parts[:-1]):
            if before == "requests":
                parts[at + 1] = self.request(parts[at + 1])
            elif before == "tenants":
                parts[at + 1] = self.tenant(parts[at + 1])
        return "/".join(parts)

    def text(self, text: str) -> str:
        """Free text: the names in it that are known, and whatever looks like a request's id."""
        return _WORD.sub(lambda found: self._word(found[0]), text)

    def request(self, name: str) -> str:
        return self._hashed(name, "")

    def tenant(self, name: str) -> str:
        return self._hashed(name, "t-")

    def _walk(self, plain: Any) -> Any:
        if isinstance(plain, dict):
            return self._object(cast("dict[str, Any]", plain))
        if isinstance(plain, list):
            return [self._walk(each) for each in cast("list[Any]", plain)]
        return plain

    def _object(self, plain: dict[str, Any]) -> dict[str, Any]:
        row = plain.keys() >= _ROW_FIELDS
        told = {}
        for key, value in plain.items():
            if value is None or isinstance(value, int | float):
                told[key] = value
            elif key == "client_id":
                told[key] = None
            elif isinstance(value, str):
                told[key] = self._string(key, value, plain, row)
            elif key in _REQUEST_LISTS:
                told[key] = [
                    self._hashed(each, "") if isinstance(each, str) else self._walk(each) for each in value
                ]
            elif key in _ENDED_LISTS and isinstance(value, list):
                told[key] = [
                    {**each, "id": self._hashed(each["id"], "")}
                    if isinstance(each, dict) and "id" in each
                    else each
                    for each in cast("list[Any]", value)
                ]
            elif key == "params" and isinstance(value, dict):
                told[key] = {
                    name: self._param(name, each) for name, each in cast("dict[str, Any]", value).items()
                }
            else:
                told[key] = self._walk(value)
        return told

    def _string(self, key: str, value: str, plain: dict[str, Any], row: bool) -> str:
        if key == "tenant":
            return self.tenant(value)
        if key in _REQUESTS or (key == "id" and row):
            return self._hashed(value, "")
        if key == "target":
            return self._target(str(plain.get("kind", "")), value)
        if key in _PLAIN or key == "id":
            return value
        return self.text(value)

    def _target(self, kind: str, target: str) -> str:
        if target in self._replicas:
            return target
        if kind.startswith("tenant"):
            return self.tenant(target)
        if kind in ("cancel", "preempt", "move"):
            return self._hashed(target, "")
        return self.text(target)

    def _param(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return self.tenant(value) if name == "tenant" else self.text(value)
        return self._walk(value)

    def _word(self, word: str) -> str:
        known = self._names.get(word)
        if known is not None:
            return known
        return self._hashed(word, "") if _ID.fullmatch(word) else word

    def _hashed(self, name: str, mark: str) -> str:
        known = self._names.get(name)
        if known is None:
            digest = hashlib.blake2s(name.encode(errors="surrogatepass"), key=self._key, digest_size=4)
            known = self._names[name] = mark + digest.hexdigest()
        return known


def _part(record: dict[str, Any], name: str) -> dict[str, Any]:
    found = record.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
