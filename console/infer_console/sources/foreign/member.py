"""One server that is watched: what it told last, or why it does not."""

import asyncio
import time
from collections.abc import Iterable

import httpx2
import msgspec
from infer_engine.foreign import tokenizing
from infer_engine.foreign.adapters import ADAPTERS, DENIED, Adapter, read, recognise
from infer_engine.foreign.asking import ANSWER_TIMEOUT_S, Answer, Asking, together
from infer_engine.foreign.beside import beside
from infer_engine.foreign.not_understood import KeyWantedError
from infer_engine.foreign.reading import Reading
from infer_engine.foreign.watching import Watching
from infer_engine.protocol import Event, Kv, Problem, Replica, RequestRow, Status, Tokenized

from infer_console.sources.backoff import Backoff
from infer_console.sources.failures import NotUnderstoodError, RefusedError, why
from infer_console.watched import Pace, Watched

#: Documents that never change while a server lives.
SELDOM = frozenset({"/version", "/v1/models", "/model_info", "/server_info", "/props"})

LONGEST_LOOK_S = 3 * ANSWER_TIMEOUT_S

Trouble = httpx2.HTTPError | NotUnderstoodError | RefusedError


class Member:
    """Looked at by a task of its own, so that one that hangs keeps nobody waiting. ``name`` is the row's,
    None where it is the only server and its rows are named by themselves. ``address`` is one of those behind
    the server's name."""

    def __init__(
        self,
        server: Watched,
        name: str | None,
        token: str | None,
        to_server: httpx2.AsyncBaseTransport,
        pace: Pace,
        address: str | None = None,
    ) -> None:
        self.server, self.name, self.address = server, name, address
        netloc = None if address is None else server.netloc
        self._asking = Asking(server.base_url(address), token, to_server, netloc)
        self._given: Adapter | None = None if server.kind == "auto" else ADAPTERS.get(server.kind)  # type: ignore[call-overload]
        self._adapter = self._given
        self._pace = pace
        self._seldom: dict[str, tuple[float, Answer]] = {}
        self._backoff = Backoff()
        self._due_s = self._reading_s = 0.0
        self._looking: asyncio.Task[None] | None = None
        self.watching = Watching(server.netloc)
        self.reading: Reading | None = None
        self.status: Status | None = None
        self.trouble: Trouble | None = None

    async def aclose(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._asking.aclose()

    # --- looking

    def begin(self) -> "asyncio.Task[None] | None":
        """A new look where it is time for one. Of several servers nobody waits for one that was late before:
        None while its look is under way."""
        if self._looking is not None and not self._looking.done():
            return self._looking if self.name is None else None
        if time.monotonic() < self._due_s:
            return None
        self._looking = asyncio.create_task(self._look())
        return self._looking

    async def _look(self) -> None:
        try:
            reading = await self._read_in_time()
            self.status = self.watching.take(reading, time.monotonic(), time.time())
        except (httpx2.HTTPError, NotUnderstoodError, RefusedError) as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - what nobody thought of must not leave old figures as new
            words = f"what it tells cannot be read ({type(error).__name__}: {error})"
            self._failed(NotUnderstoodError(words))
        else:
            self.reading, self.trouble = reading, None
            # One whose pages are long to read takes half of this console's time, and not all of it.
            self._due_s = time.monotonic() + self._reading_s
            self._backoff.reset()

    def _failed(self, trouble: Trouble) -> None:
        self.trouble = trouble
        # Alone, whoever asks waits by itself before it asks again.
        self._due_s = 0.0 if self.name is None else time.monotonic() + self._backoff.next_s()

    async def _read_in_time(self) -> Reading:
        """One that tells its pages a byte at a time does not tell them."""
        try:
            async with asyncio.timeout(LONGEST_LOOK_S):
                return await self._read_or_forget()
        except TimeoutError as error:
            raise httpx2.ReadTimeout("no answer in time") from error

    async def _read_or_forget(self) -> Reading:
        """What comes back after a failure may be another server, or another version of it."""
        try:
            return await self._read()
        except (httpx2.HTTPError, NotUnderstoodError):
            self._seldom.clear()
            self._adapter = self._given
            raise

    async def _read(self) -> Reading:
        if self._adapter is None:
            try:
                self._adapter = await recognise(self._asking)
            except KeyWantedError as error:
                raise _asks_for_key("it", error.status) from error
        adapter = self._adapter
        given = await together(*(self._ask(path) for path in adapter.paths))
        answers = {answer.path: answer for answer in given}
        essential = [answers[path] for path in adapter.essential]
        for answer in essential:
            if answer.status in DENIED:
                raise _asks_for_key(adapter.product, answer.status)
        loading = adapter.product == "llama.cpp" and answers["/health"].status == 503
        if not loading and not any(answer.told for answer in essential):
            words = ", ".join(f"{answer.path} answers {answer.status}" for answer in essential)
            fails = any(
                (answer.status >= 500 and answer.offered) or answer.status == 429 for answer in essential
            )
            what = f"{adapter.product} fails" if fails else f"this does not look like {adapter.product}"
            raise NotUnderstoodError(f"{what}: {words}")
        return await beside(lambda: self._parse(adapter, answers), sum(len(answer.body) for answer in given))

    def _parse(self, adapter: Adapter, answers: dict[str, Answer]) -> Reading:
        """Where pages are read; how long others' pages kept it waiting for that is not its own time."""
        began_s = time.monotonic()
        reading = read(adapter, answers)
        self._reading_s = time.monotonic() - began_s
        return reading

    async def _ask(self, path: str) -> Answer:
        kept = self._seldom.get(path)
        if kept is not None and time.monotonic() - kept[0] < self._pace.seldom_s:
            return kept[1]
        answer = await self._asking.get(path)
        if path in SELDOM and (answer.told or not answer.offered):
            self._seldom[path] = (time.monotonic(), answer)
        return answer

    async def tokenize(self, text: str) -> Tokenized:
        """``text`` as its tokens. It is sent there; nothing else is ever asked of it with a POST."""
        if self.reading is None or self._adapter is None:
            raise NotUnderstoodError(self.why_not)
        product, model = self._adapter.product, self.reading.model
        named = model if product == "vLLM" and ", " not in model else None
        answer = await self._asking.post(tokenizing.PATH, tokenizing.question(product, named, text))
        if not answer.told:
            title = f"{self.reading.product} answers {tokenizing.PATH} with {answer.status}"
            raise RefusedError(Problem(status=501, code="not_tokenized", title=title))
        return Tokenized(tokenizer=model, tokens=tokenizing.pieces(answer.json(), text))

    # --- what it told, under the names it has in the fleet

    @property
    def live(self) -> bool:
        return self.trouble is None and self.status is not None

    @property
    def why_not(self) -> str:
        """Why there is nothing new of it."""
        trouble = self.trouble
        if isinstance(trouble, httpx2.HTTPError):
            return why(trouble)
        if isinstance(trouble, RefusedError):
            return f"{trouble.problem.title}: {trouble.problem.detail}"
        return "it has not answered yet" if trouble is None else str(trouble)

    @property
    def url(self) -> str:
        """As ``serve --upstream`` takes it."""
        return f"{self.server.kind}+{self.server.base_url(self.address)}"

    def row_name(self, engine: str) -> str:
        if self.name is None:
            return engine
        ranks = len(self.reading.engines) if self.reading is not None else 1
        return self.name if ranks == 1 else f"{self.name}/{engine}"

    def replicas(self) -> list[Replica]:
        """Its rows. Of one that does not answer: what it is, and no figures."""
        if self.status is None:
            state = "starting" if self.trouble is None else "failed"
            name = self.name or "e0"
            return [Replica(id=name, state=state, error=self.why_not, watched_url=self.url)]
        rows = [
            msgspec.structs.replace(each, id=self.row_name(each.id), watched_url=self.url)
            for each in self.status.replicas
        ]
        if self.trouble is None:
            return rows
        return [
            Replica(
                id=row.id,
                state="failed",
                error=f"unreachable: {self.why_not}",
                kv=Kv(block_size=row.kv.block_size, total=row.kv.total),
                max_running=row.max_running,
                incarnation=row.incarnation,
                foreign=row.foreign,
                watched_url=row.watched_url,
            )
            for row in rows
        ]

    def rows(self) -> dict[str, list[RequestRow]]:
        """Its requests, by row; in a fleet each is told from those of other servers by whose it is."""
        if not self.live:
            return {}
        found: dict[str, list[RequestRow]] = {}
        for engine, rows in self.watching.rows.items():
            name = self.row_name(engine)
            found[name] = rows if self.name is None else list(_renamed(rows, self.name, name))
        return found

    def new_events(self) -> list[Event]:
        """What happened since they were last asked for; numbers are its own."""
        happened = list(self.watching.events)
        self.watching.events.clear()
        return [
            msgspec.structs.replace(event, replica=self.row_name(event.replica or "e0")) for event in happened
        ]


def _asks_for_key(who: str, status: int) -> RefusedError:
    title, hint = f"{who} asks for a key", "put it into INFER_CONSOLE_TOKEN"
    return RefusedError(Problem(status=status, code="unauthorized", title=title, detail=hint))


def _renamed(rows: Iterable[RequestRow], member: str, row: str) -> Iterable[RequestRow]:
    for each in rows:
        yield msgspec.structs.replace(each, id=f"{each.id}@{member}", replica=row)
