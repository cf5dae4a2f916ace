"""Publishes what the fleet does to an MQTT broker. The engine never waits for it: a broker that is slow, hung
or gone costs a bounded mailbox and nothing else.

One task owns the connection and everything about it; nothing is ever received, and nothing can be commanded
this way.
"""

import asyncio
import contextlib
import logging
import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiomqtt
import msgspec
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from infer_engine.fleet.feed import FeedItem
from infer_engine.fleet.fleet import Fleet
from infer_engine.protocol import Event, Status
from infer_engine.telemetry.mqtt_address import BrokerAddress
from infer_engine.telemetry.mqtt_documents import Documents
from infer_engine.telemetry.mqtt_mailbox import Letter, Mailbox

log = logging.getLogger(__name__)

TELEMETRY_S = 1.0
KEEPALIVE_S = 15
#: How long one message may take to reach the broker before the connection counts as lost.
SEND_TIMEOUT_S = 10.0
FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0
#: A lost connection that comes back within this is not announced as a death.
WILL_DELAY_S = 5
#: How long the farewell may take when the server stops.
GOODBYE_S = 2.0
#: How long the connection may take to end after that.
HANG_UP_S = 0.5
MOST_CANCELLATIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    address: BrokerAddress
    password: str | None = None
    #: Certificates to trust instead of the system's.
    ca_file: Path | None = None

    def tls(self) -> ssl.SSLContext | None:
        if not self.address.tls:
            return None
        context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


class Publisher:
    """``start`` and ``close`` belong together. ``status`` is computed once a second, connected or not asked:
    only while connected. OSError (ssl.SSLError) from the constructor when the CA file cannot be read."""

    def __init__(
        self,
        fleet: Fleet,
        broker: Broker,
        *,
        status: Callable[[], Status],
        control: str | None = None,
        name: str | None = None,
    ) -> None:
        self._fleet = fleet
        self._broker = broker
        self._tls = broker.tls()
        self._status = status
        self._control = control
        self._documents = Documents(name or fleet.settings.name, int(time.time() * 1000), fleet.epoch)
        self._incarnation = f"{self._documents.fleet}-{fleet.epoch}"
        self.mailbox = Mailbox()
        self._filled = asyncio.Event()
        self._known: dict[str, tuple[object, ...]] = {}
        self.connected = False
        #: Connections made since the start.
        self.connections = 0
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._unsubscribe = self._fleet.feed.subscribe(self._happened)
        self._task = asyncio.create_task(self._supervise(), name="mqtt")

    async def close(self) -> None:
        """Says goodbye where the broker listens; takes a few seconds at most."""
        self._unsubscribe()
        self._closing = True
        if self._task is None:
            return
        # A cancellation can get lost: in ``wait_for`` when what it waits for is just done, and under the
        # error of a disconnect that takes too long. Hence the flag, and another one.
        for _ in range(MOST_CANCELLATIONS):
            self._task.cancel()
            ended, _ = await asyncio.wait({self._task}, timeout=GOODBYE_S + HANG_UP_S)
            if ended:
                return
        log.warning("mqtt broker %s: the connection does not end", self._broker.address.host)

    # --- what there is to say ------------------------------------------------------------------------------

    def _happened(self, item: FeedItem) -> None:
        if isinstance(item, Event):
            self.mailbox.event(self._documents.event(item))
            self._filled.set()

    def _look(self) -> None:
        """Put the present moment into the mailbox: telemetry always, replicas' states when they changed."""
        status, at = self._status(), time.time()
        for letter in self._documents.telemetry(status, at):
            self.mailbox.latest(letter)
        for replica in status.replicas:
            state = (replica.state, replica.health, replica.incarnation)
            if self._known.get(replica.id) != state:
                self._known[replica.id] = state
                self.mailbox.latest(self._documents.replica_status(replica, at))
        for gone in self._known.keys() - {replica.id for replica in status.replicas}:
            del self._known[gone]
            self.mailbox.latest(self._documents.replica_gone(gone))
        self._filled.set()

    def _begin(self) -> None:
        """A connection is there: whatever the broker knows is replaced by what is now."""
        self.mailbox.forget_values()
        self._known.clear()
        status, at = self._status(), time.time()
        self.mailbox.latest(self._documents.online(at))
        self.mailbox.latest(self._documents.info(status, at, self._control))
        self._look()

    # --- how it gets there ---------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        """Connected for as long as the broker permits, and again after a while, each time a longer one."""
        failures, last_error = 0, ""
        while not self._closing:
            try:
                await self._connection()
            except (aiomqtt.MqttError, OSError, ValueError) as error:
                failures = 0 if self.connected else failures + 1
                if (said := str(error)) != last_error or failures == 0:
                    log.warning("mqtt broker %s: %s", self._broker.address.host, said)
                last_error = said
            finally:
                self.connected = False
            if self._closing:
                return
            longest_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(failures, 10))
            await asyncio.sleep(random.uniform(FIRST_BACKOFF_S / 2, longest_s))

    async def _connection(self) -> None:
        address = self._broker.address
        will = self._documents.offline(time.time())
        will_properties = Properties(PacketTypes.WILLMESSAGE)
        will_properties.WillDelayInterval = WILL_DELAY_S
        async with aiomqtt.Client(
            address.host,
            address.port,
            username=address.user,
            password=self._broker.password,
            identifier=f"infer-{self._incarnation}",
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=True,
            will=aiomqtt.Will(will.topic, _encoded(will), will.qos, will.retain, will_properties),
            timeout=SEND_TIMEOUT_S,
            keepalive=KEEPALIVE_S,
            tls_context=self._tls,
            max_queued_incoming_messages=1,
        ) as client:
            self.connected = True
            self.connections += 1
            log.info("mqtt: connected to %s:%d", address.host, address.port)
            self._begin()
            try:
                await self._deliver(client)
            finally:
                if self._closing:
                    # A clean end makes the broker drop the will, so the farewell goes first.
                    with contextlib.suppress(aiomqtt.MqttError, TimeoutError):
                        async with asyncio.timeout(GOODBYE_S):
                            await self._send(client, self._documents.offline(time.time()))

    async def _deliver(self, client: aiomqtt.Client) -> None:
        next_look_s = time.monotonic() + TELEMETRY_S
        while not self._closing:
            while not self._closing and (letter := self.mailbox.take()) is not None:
                try:
                    await self._send(client, letter)
                except BaseException:
                    self.mailbox.put_back(letter, is_event="/event/" in letter.topic)
                    raise
                if time.monotonic() >= next_look_s:
                    break
            self._filled.clear()
            left_s = next_look_s - time.monotonic()
            if left_s > 0 and not len(self.mailbox):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._filled.wait()
            if time.monotonic() >= next_look_s:
                next_look_s = time.monotonic() + TELEMETRY_S
                self._look()

    async def _send(self, client: aiomqtt.Client, letter: Letter) -> None:
        properties: Properties | None = None
        if letter.expiry_s is not None:
            properties = Properties(PacketTypes.PUBLISH)
            properties.MessageExpiryInterval = letter.expiry_s
        await client.publish(letter.topic, _encoded(letter), letter.qos, letter.retain, properties)


def _encoded(letter: Letter) -> bytes:
    return msgspec.json.encode(letter.payload) if letter.payload else b""
