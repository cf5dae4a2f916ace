"""What the audit says of one request to the control API: who, what, to what, how it ended. Never a prompt, a
token or a header that could hold one."""

import time
import uuid
from typing import Any, cast

import msgspec
from starlette.requests import Request

from infer_engine.audit_chain import Record
from infer_engine.control.principal import principal_of
from infer_engine.protocol import CommandResult, Problem

MAX_TEXT = 120
#: Named beside the params, or said by other fields.
_APART = ("reason", "actor", "dry_run", "force")


class Account:
    """One attempt, from when it came. ``record`` says how far it got."""

    def __init__(self, request: Request, verb: str) -> None:
        self._began_s = time.monotonic()
        principal = principal_of(request.scope)
        self._fields: Record = {
            "v": 1,
            "audit_id": uuid.uuid4().hex,
            "verb": verb,
            "actor": {
                "subject": principal.subject if principal else None,
                "role": principal.role if principal else None,
                "auth_method": principal.auth_method if principal else None,
                "token_id": principal.token_id if principal else None,
                "peer_uid": principal.peer_uid if principal else None,
                "peer_pid": principal.peer_pid if principal else None,
                "source_ip": principal.source_ip if principal else None,
                "claims": None,
            },
            "client": {"name": plain(request.headers.get("user-agent"))},
            "target": {"kind": "path", "id": plain(request.url.path)},
        }

    def of_target(self, kind: str, target: str) -> None:
        self._fields["target"] = {"kind": kind, "id": plain(target)}

    def of_key(self, key: str | None) -> None:
        self._fields["idempotency_key"] = key

    def of_version(self, before: str | None, after: str | None = None) -> None:
        self._fields["target"] |= {"resource_version_before": before, "resource_version_after": after}

    def of_command(self, command: msgspec.Struct) -> None:
        given: dict[str, Any] = msgspec.to_builtins(command)
        self._fields["actor"]["claims"] = plain(given.get("actor")) or None
        self._fields["reason"] = given.get("reason", "")
        self._fields["dry_run"] = given.get("dry_run", False)
        self._fields["force"] = given.get("force", False)
        params = {name: value for name, value in given.items() if name not in _APART}
        if isinstance(trace := params.get("trace"), list):  # its length tells enough
            params["trace"] = f"{len(cast('list[object]', trace))} requests"
        self._fields["params"] = params

    def of_result(self, result: object) -> None:
        if isinstance(result, CommandResult):
            self._fields["op_id"] = result.operation.id if result.operation else None
            self._fields["affected"] = result.effect.numbers

    def record(self, stage: str, status: int | None = None, code: str | None = None) -> Record:
        """As of now."""
        record = {**self._fields, "stage": stage}
        if status is not None:
            record["outcome"] = {"status": status, "code": code}
            record["duration_ms"] = round((time.monotonic() - self._began_s) * 1000, 3)
        return record

    def refused(self, problem: Problem) -> Record:
        return self.record("completed", problem.status, problem.code)


def plain(text: object) -> str | None:
    """Bounded and in ASCII: what a client made up must not grow a record, nor reach a terminal."""
    if not isinstance(text, str):
        return None
    shown = ascii(text)[1:-1]
    return shown if len(shown) <= MAX_TEXT else shown[:MAX_TEXT] + "..."
