"""``python -m infer_engine token``: making, listing and revoking the tokens of the control API."""

import argparse
import json
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from infer_engine.control.roles import parse_role
from infer_engine.control.token_file import (
    TokenFile,
    TokenFileError,
    changing,
    read_token_file,
    without,
    write_token_file,
)
from infer_engine.control.tokens import NAME, Token, new_token
from infer_engine.protocol import Role

MOST_DAYS = 3_650


def add_options(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True)
    new = verbs.add_parser("new", help="add a token to the file and print it, once")
    new.add_argument("--name", required=True, type=_name, help="whose token it is")
    new.add_argument("--role", required=True, type=_role, help="viewer, viewer+content, operator or admin")
    new.add_argument("--expires", type=_lifetime, default=None, metavar="DAYSd", help="such as 90d")
    listing = verbs.add_parser("list", help="list the tokens in the file; never their secrets")
    listing.add_argument("--json", action="store_true", help="one JSON document on stdout")
    revoke = verbs.add_parser("revoke", help="take a token out of the file")
    revoke.add_argument("id", help="the token's id, the second part of it")
    for verb in (new, listing, revoke):
        verb.add_argument("--file", required=True, type=Path, help="the server's token file")


def run(options: Namespace) -> int:
    try:
        match options.action:
            case "new":
                return _new(options.file, options.name, options.role, options.expires)
            case "revoke":
                return _revoke(options.file, options.id)
            case _:
                return _list(read_token_file(options.file).tokens, as_json=options.json)
    except TokenFileError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"token file {options.file}: {error.strerror or error}")


def _new(path: Path, name: str, role: Role, expires: datetime | None) -> int:
    with changing(path):
        known = read_token_file(path) if path.exists() or path.is_symlink() else TokenFile()
        token, text = new_token(name, role, expires, taken={each.id for each in known.tokens})
        write_token_file(path, replace(known, tokens=(*known.tokens, token)))
    _note(f"added to {path}: {token.id}, {token.role}, for {token.name}; it is not shown again:")
    print(text)
    return 0


def _revoke(path: Path, token_id: str) -> int:
    with changing(path):
        known = read_token_file(path)
        left = without(known.tokens, token_id)
        if len(left) == len(known.tokens):
            return _fail(f"token file {path}: there is no token {token_id!a}")
        write_token_file(path, replace(known, tokens=left))
    _note(f"{token_id} is revoked once the server has read the file again: kill -HUP its pid")
    return 0


def _list(tokens: Sequence[Token], *, as_json: bool) -> int:
    rows = [
        {
            "id": token.id,
            "name": token.name,
            "role": token.role,
            "expires": token.expires.isoformat() if token.expires else None,
            "sha256": token.sha256[:8],
        }
        for token in tokens
    ]
    if as_json:
        print(json.dumps({"version": 1, "tokens": rows}))
        return 0
    for row in rows:
        print(f"{row['id']}  {row['role']:8}  {row['name']:24}  {row['expires'] or 'does not expire'}")
    return 0


def _name(given: str) -> str:
    if not NAME.fullmatch(given):
        raise ArgumentTypeError(f"{given!a} was given, allowed are 1 to 64 of A-Z, a-z, 0-9 and . _ @ -")
    return given


def _role(given: str) -> Role:
    try:
        return parse_role(given)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def _lifetime(given: str) -> datetime:
    days = re.fullmatch(r"(\d{1,4})d", given, re.ASCII)
    if days is None or not 1 <= int(days[1]) <= MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{given!a} was given, allowed are days from 1d to {MOST_DAYS}d")
    return (datetime.now(UTC) + timedelta(days=int(days[1]))).replace(microsecond=0)


def _note(message: str) -> None:
    print(message, file=sys.stderr)


def _fail(message: str) -> int:
    print(f"infer-engine: {message}", file=sys.stderr)
    return 1
