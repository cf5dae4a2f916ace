"""A replica that joins a fleet by itself: knocks at the server, checks that it has the same model, and starts
the ordinary worker, again for each life.

The worker is a child with a lifeline, as one of the server's own: it may crash, stall or be killed, and this
process stays to say so and to join again. It waits longer after each attempt that came to nothing.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

import msgspec
from msgspec import structs

from infer_engine.model.errors import ModelError
from infer_engine.model.fingerprint import fingerprint
from infer_engine.model.source import open_source
from infer_engine.model.store import resolve
from infer_engine.replica.join_messages import (
    JOIN_VERSION,
    MOST_HOST_CHARACTERS,
    EndLife,
    Join,
    Knock,
    Leave,
    LifeEnded,
    Terms,
    TurnedAway,
    Welcome,
)
from infer_engine.replica.join_socket import JoinSocket
from infer_engine.replica.launch_local import child_environment, default_threads
from infer_engine.replica.link_watch import LinkLostError
from infer_engine.replica.messages import LinkKeys, ReplicaConfig
from infer_engine.replica.oom import oom_kills
from infer_engine.replica.wire import WILL_FAIL_AGAIN, MalformedError
from infer_engine.settings import Device, ReplicaSettings

log = logging.getLogger(__name__)

Wanted = TypeVar("Wanted", Terms, Welcome)

FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 15.0
#: A life that lasted so long ends a row of failures.
LONG_LIFE_S = 60.0
#: How long the server may take for its next word before there is a worker.
ANSWER_S = 30.0
#: How often the worker and the signals are looked at.
LOOK_S = 0.1
#: How long a worker whose lifeline is closed may take to end.
GRACE_S = 3.0
#: Beyond the time that it was given, how long leaving may take.
LEAVE_GRACE_S = 10.0


class JoinFailedError(Exception):
    """Trying again would not help; ``str()`` says why."""


class _TryAgain(Exception):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """What the operator of this machine says; None leaves it to the server's settings."""

    endpoint: str
    #: Its ticket is not used.
    keys: LinkKeys
    host: str
    replica: str | None = None
    model: str | None = None
    device: Device | None = None
    threads: int | None = None
    kv_blocks: int | None = None
    drain_s: float = 25.0


class Joiner:
    def __init__(self, options: JoinOptions, say: Callable[[str], None]) -> None:
        self._options = options
        self._say = say
        #: The id to ask for: given, or had once.
        self._replica = options.replica
        self._fingerprints: dict[str, dict[str, str]] = {}
        self._signals = 0
        self._said = ""
        self._joined = False

    def run(self) -> int:
        """Until SIGTERM: 0. JoinFailedError when joining cannot work."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        failures = 0
        while not self._signals:
            began_s = time.monotonic()
            try:
                self._live_once()
            except LinkLostError as error:
                self._tell(str(error))
                failures = max(failures, 6 if error.refused else 0)
            except (_TryAgain, MalformedError) as error:
                self._tell(str(error))
            failures = 0 if time.monotonic() - began_s > LONG_LIFE_S else failures + 1
            self._pause(min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (failures - 1)) if failures else 0.0)
        if self._joined:
            self._say(f"left {self._options.endpoint}")
        return 0

    def _tell(self, what: str) -> None:
        """Once, until something else is to be said; nothing is tried again by one that is to leave."""
        if what != self._said and not self._signals:
            self._said = what
            self._say(f"{what}; trying again")

    def _pause(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while not self._signals and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left_s))

    # --- one life ------------------------------------------------------------------------------------------

    def _live_once(self) -> None:
        options = self._options
        try:
            link = JoinSocket(options.endpoint, options.keys)
        except ValueError as error:
            raise JoinFailedError(str(error)) from error
        try:
            link.send(
                Knock(
                    version=JOIN_VERSION,
                    host=options.host[:MOST_HOST_CHARACTERS],
                    pid=os.getpid(),
                    replica=self._replica,
                )
            )
            settings = self._own(self._await(link, Terms).settings)
            link.send(Join(model=self._fingerprint(settings.model)))
            welcome = self._await(link, Welcome)
            self._replica = welcome.replica
            self._said, self._joined = "", True
            self._say(f"joined {options.endpoint} as {welcome.replica}")
            self._look_after(link, welcome, settings)
        finally:
            link.close()

    def _await(self, link: JoinSocket, wanted: type[Wanted]) -> Wanted:
        until_s = time.monotonic() + ANSWER_S
        while time.monotonic() < until_s and not self._signals:
            message = link.receive(LOOK_S)
            if isinstance(message, wanted):
                return message
            if isinstance(message, TurnedAway):
                self._turned_away(message)
        raise _TryAgain("the server does not answer" if not self._signals else "asked to stop")

    def _turned_away(self, message: TurnedAway) -> None:
        why = f"the server does not let this replica in: {message.why}"
        if message.other_id and self._options.replica is None:
            self._replica = None
        elif message.final:
            raise JoinFailedError(why)
        raise _TryAgain(why)

    def _own(self, settings: ReplicaSettings) -> ReplicaSettings:
        """The fleet's settings, with what this machine's operator said of it."""
        options = self._options
        given = {name: getattr(options, name) for name in ("model", "device", "kv_blocks")}
        changes = {name: value for name, value in given.items() if value is not None}
        threads = options.threads or settings.threads or default_threads(1)
        return structs.replace(settings, threads=threads, sharers=1, **changes)

    def _fingerprint(self, model: str) -> dict[str, str]:
        if model not in self._fingerprints:
            try:
                self._fingerprints[model] = fingerprint(open_source(resolve(model)))
            except (ModelError, OSError) as error:
                raise JoinFailedError(f"{error} (--model names it where this machine has it)") from error
        return self._fingerprints[model]

    def _look_after(self, link: JoinSocket, welcome: Welcome, settings: ReplicaSettings) -> None:
        config = ReplicaConfig(
            replica=welcome.replica,
            incarnation=welcome.incarnation,
            endpoint=self._options.endpoint,
            settings=settings,
            keys=structs.replace(self._options.keys, ticket=welcome.ticket),
        )
        oom_before = oom_kills()
        worker = _start(config)
        try:
            code = self._until_ended(link, worker, welcome.incarnation)
        finally:
            _end(worker)
        # Where the server is gone nobody is left to be told.
        with contextlib.suppress(LinkLostError):
            oom_now = oom_kills()
            oom = None if oom_before is None or oom_now is None else oom_now > oom_before
            link.send(LifeEnded(incarnation=welcome.incarnation, code=code, oom=oom))
        if code == WILL_FAIL_AGAIN:
            raise JoinFailedError(f"the worker of {welcome.replica} cannot work: its last words are above")
        if not self._signals:
            raise _TryAgain(f"{welcome.replica} is not in the fleet any more: its worker ended with {code}")

    def _until_ended(self, link: JoinSocket, worker: "subprocess.Popen[bytes]", incarnation: int) -> int:
        """The exit code of the worker, which has ended, or is ended here: on the server's word, or because
        leaving took too long."""
        leave_by_s: float | None = None
        while (code := worker.poll()) is None:
            if self._signals and leave_by_s is None:
                leave_by_s = time.monotonic() + self._options.drain_s + LEAVE_GRACE_S
                link.send(Leave(within_s=self._options.drain_s))
                self._say(
                    f"leaving: its requests end here or go on elsewhere, within {self._options.drain_s:g} s"
                )
            late = leave_by_s is not None and time.monotonic() > leave_by_s
            message = link.receive(LOOK_S)
            told = isinstance(message, EndLife) and message.incarnation == incarnation
            if told or late or self._signals > 1:
                worker.kill()
                return worker.wait()
        return code

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1


def _start(config: ReplicaConfig) -> "subprocess.Popen[bytes]":
    worker = subprocess.Popen(
        [sys.executable, "-m", "infer_engine.replica.worker"],
        stdin=subprocess.PIPE,
        stdout=sys.stderr,
        env=child_environment(config.settings.threads or 1),
        start_new_session=True,
    )
    if worker.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # it died at once: its exit code tells
            worker.stdin.write(msgspec.json.encode(config) + b"\n")
            worker.stdin.flush()
    return worker


def _end(worker: "subprocess.Popen[bytes]") -> None:
    """By its lifeline, then by force."""
    if worker.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            worker.stdin.close()
    try:
        worker.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
