"""GPU health of watched servers, where NVIDIA's DCGM exporter is watched too: whose GPUs are which."""

import asyncio
import time
from collections.abc import Callable, Sequence

import httpx2
import msgspec
from infer_engine.foreign.asking import Asking
from infer_engine.foreign.beside import beside
from infer_engine.foreign.dcgm import Gpu, GpuMemory, device_words, health, read_gpus, troubles
from infer_engine.protocol import Replica

from infer_console.sources.failures import NotUnderstoodError, why
from infer_console.sources.foreign.member import Member
from infer_console.watched import Pace, Watched


class Exporter:
    """One exporter: the GPUs of its machine as it told them last; none while it does not answer."""

    def __init__(
        self,
        server: Watched,
        to_server: httpx2.AsyncBaseTransport,
        pace: Pace,
        address: str | None = None,
    ) -> None:
        self.server, self.address = server, address
        self._asking = Asking(
            server.base_url(address), None, to_server, None if address is None else server.netloc
        )
        self._pace = pace
        self._due_s = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._memory = GpuMemory()
        self.gpus: list[Gpu] = []
        self.trouble = ""

    async def aclose(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._asking.aclose()

    def begin(self) -> "asyncio.Task[None] | None":
        """A new look, where it is time for one and none is under way."""
        if self._looking is not None and not self._looking.done():
            return None
        if time.monotonic() < self._due_s:
            return None
        self._due_s = time.monotonic() + self._pace.gpus_s
        self._looking = asyncio.create_task(self._look())
        return self._looking

    async def _look(self) -> None:
        try:
            answer = await self._asking.get("/metrics")
            if not answer.told:
                raise NotUnderstoodError(f"/metrics answers {answer.status}")
            self.gpus = await beside(lambda: read_gpus(answer.page()), len(answer.body))
        except httpx2.HTTPError as error:
            self.gpus, self.trouble = [], why(error)
        except NotUnderstoodError as error:
            self.gpus, self.trouble = [], str(error)
        except Exception as error:  # noqa: BLE001 - what nobody thought of must not leave old figures as new
            self.gpus, self.trouble = [], f"what it tells cannot be read ({type(error).__name__}: {error})"
        else:
            self.trouble = ""
            self._memory.take(self.gpus)

    def is_beside(self, member: Member) -> bool:
        """Whether that server is on this exporter's machine, by the name or address of either."""
        theirs = {member.server.host, member.address} - {None}
        hostnames = {gpu.hostname.lower() for gpu in self.gpus if gpu.hostname}
        ours = {self.server.host, self.address, *hostnames} - {None}
        firsts = {name.partition(".")[0] for name in hostnames}
        named = member.server.host.partition(".")[0] if not member.server.dns else None
        return bool(theirs & ours) or named in firsts

    def of(self, member: Member, alone: bool) -> list[Gpu]:
        """The GPUs of that server: those it was said to have, else all of its machine where it is ``alone``
        there."""
        given = member.server.gpus
        if given:
            named = [gpu for gpu in self.gpus if gpu.uuid in given]
            numbered = [gpu for gpu in self.gpus if gpu.number in given] if self.is_beside(member) else []
            return named or numbered
        return self.gpus if alone and self.is_beside(member) else []

    def put_on(self, replica: Replica, gpus: Sequence[Gpu]) -> Replica:
        return msgspec.structs.replace(
            replica,
            gpu=health(gpus, self._memory),
            gpu_trouble=troubles(gpus, self._memory),
            device=device_words(gpus),
        )


class Gpus:
    """All exporters. ``say`` is told, once each, what an operator should know: an exporter that does not
    answer, and GPUs of which nobody says whose they are."""

    def __init__(self, exporters: Sequence[Exporter], say: Callable[[str], None]) -> None:
        self._exporters = exporters
        self._say = say
        self._said: dict[str, str] = {}

    def begin(self) -> "list[asyncio.Task[None] | None]":
        return [exporter.begin() for exporter in self._exporters]

    async def aclose(self) -> None:
        for exporter in self._exporters:
            await exporter.aclose()

    def put_on(self, rows: dict[Member, list[Replica]]) -> dict[Member, list[Replica]]:
        """The rows with the health of the GPUs under each."""
        found = dict(rows)
        for exporter in self._exporters:
            beside = [member for member in rows if exporter.is_beside(member)]
            mapped: set[str] = set()
            for member, replicas in found.items():
                gpus = exporter.of(member, alone=beside == [member])
                if gpus and member.live:
                    found[member] = [exporter.put_on(replica, gpus) for replica in replicas]
                mapped.update(gpu.uuid for gpu in gpus)
            self._tell(exporter, beside, len(exporter.gpus) - len(mapped))
        return found

    def _tell(self, exporter: Exporter, beside: list[Member], left: int) -> None:
        where, gpus = f"dcgm {exporter.server.netloc}", f"{left} GPU{'s' if left != 1 else ''}"
        if exporter.trouble:
            words = f"{where}: {exporter.trouble}"
        elif not exporter.gpus or not left:
            words = ""
        elif not beside:
            words = f"{where}: {gpus} of no server that is watched"
        elif len(beside) > 1:
            names = ", ".join(member.server.netloc for member in beside)
            words = f"{where}: {gpus}, and nobody says whose of {names}: #gpu=0+1 does"
        else:
            words = f"{where}: {gpus} not said to be a server's"
        if words != self._said.get(where, ""):
            self._said[where] = words
            self._say(words or f"{where}: all its GPUs are known")
