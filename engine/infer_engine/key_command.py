"""``python -m infer_engine key new``: making API keys of the gateway."""

import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from infer_engine.gateway.keys import KeysError
from infer_engine.gateway.new_key import make_key

MOST_DAYS = 3_650


def add_options(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True)
    new = verbs.add_parser("new", help="add a key to the file and print it, once")
    new.add_argument("id", help="what the key is called: a-z, 0-9 and -")
    new.add_argument("--file", required=True, type=Path, help="the server's key file")
    new.add_argument("--tenant", required=True, help="whose requests come with it")
    new.add_argument("--tier", choices=("interactive", "batch"), help="a ceiling: batch means only batch")
    new.add_argument("--concurrency", type=int, metavar="N", help="most requests with it at once")
    new.add_argument("--expires", type=_lifetime, metavar="DAYSd", help="after so many days, such as 90d")


def run(options: Namespace) -> int:
    try:
        key = make_key(
            options.file,
            options.id,
            options.tenant,
            tier=options.tier,
            concurrency=options.concurrency,
            expires=options.expires,
        )
    except KeysError as error:
        sys.stderr.write(f"infer-engine: {error}\n")
        return 1
    sys.stderr.write(
        f"added {options.id} of tenant {options.tenant} to {options.file}; "
        "the key is not shown again, and the server knows it after a SIGHUP:\n"
    )
    sys.stdout.write(f"{key}\n")
    return 0


def _lifetime(given: str) -> datetime:
    days = re.fullmatch(r"(\d{1,4})d", given, re.ASCII)
    if days is None or not 1 <= int(days[1]) <= MOST_DAYS:
        raise ArgumentTypeError(f"{given!a} was given, allowed are days from 1d to {MOST_DAYS}d")
    return (datetime.now(UTC) + timedelta(days=int(days[1]))).replace(microsecond=0)
