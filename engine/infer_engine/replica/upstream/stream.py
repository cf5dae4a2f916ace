"""One request on its way through somebody else's server: asked for by a POST, read as it comes, cancelled by
closing it."""

import asyncio
import contextlib
import email.utils
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import httpx2
import msgspec

from infer_engine.core.request import Request
from infer_engine.foreign.not_understood import NotUnderstoodError
from infer_engine.protocol import FinishReason
from infer_engine.replica.upstream.dialect import Ask, Dialect, Heard
from infer_engine.replica.upstream.events import SaidError, events, told_error

log = logging.getLogger(__name__)

#: A server that says no token for so long is left, whatever else it says meanwhile.
MOST_SILENT_S = 600.0
#: The words of a server that refuses may take so long.
FAILURE_S = 2.0
CONNECT_S = 3.0
SEND_S = 10.0
#: A stream whose end is known is read to its end for so long, so that its connection can be used again.
LINGER_S = 1.0
MAX_ERROR_BYTES = 64 * 1024
#: What a server names as the time to ask again is believed up to here.
MOST_RETRY_S = 30.0

#: refused: this request cannot be served there, others may; strange: nor does what it answered make sense;
#: busy: not now; broken: the server may be gone.
How = Literal["refused", "strange", "busy", "broken"]


@dataclass(frozen=True, slots=True)
class Ended:
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class Broke:
    how: How
    message: str
    retry_after_s: float | None = None


Told = Heard | Ended | Broke


class Stream:
    """``tell`` hears everything in order, an Ended or Broke last, unless the stream is closed before."""

    def __init__(
        self,
        request: Request,
        ask: Ask,
        dialect: Dialect,
        http: httpx2.AsyncClient,
        tell: Callable[["Stream", Told], None],
        key: str | None = None,
    ) -> None:
        self.request = request
        #: What the server knows us by: no word of its own passes that on.
        self._key = key
        self._dialect = dialect
        self._http = http
        self._tell = tell
        self._closed = False
        self._task = asyncio.create_task(self._run(ask), name=f"upstream-{request.id}")

    def close(self) -> None:
        """Nothing of it is told any more, and the server sees that nobody reads."""
        self._closed = True
        self._task.cancel()

    def leave(self) -> None:
        """Its end is known: read it to its end if that comes soon."""
        self._closed = True
        if not self._task.done():
            asyncio.get_running_loop().call_later(LINGER_S, self._task.cancel)

    @property
    def task(self) -> "asyncio.Task[None]":
        """Reads it; done when the connection is let go."""
        return self._task

    def _say(self, told: Told) -> None:
        if self._key and isinstance(told, Broke) and self._key in told.message:
            told = replace(told, message=told.message.replace(self._key, "…"))
        if not self._closed:
            self._tell(self, told)

    async def _run(self, ask: Ask) -> None:
        try:
            self._say(await self._read(ask))
        except SaidError as error:
            self._say(_by_status(error.status, str(error), None))
        except NotUnderstoodError as error:
            self._say(Broke("strange", str(error)))
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            self._say(Broke("broken", f"{type(error).__name__}: {str(error)[:120]}".rstrip(": ")))
        except Exception as error:  # a request without a reader would wait for ever
            log.exception("reading a stream of %s failed", self._dialect.product)
            self._say(Broke("broken", f"{type(error).__name__} while reading its stream"))

    async def _read(self, ask: Ask) -> Told:
        body = msgspec.json.encode(self._dialect.body(ask))
        async with self._http.stream(
            "POST",
            self._dialect.path,
            content=body,
            headers={"content-type": "application/json", "accept-encoding": "identity"},
            timeout=httpx2.Timeout(MOST_SILENT_S, connect=CONNECT_S, write=SEND_S, pool=CONNECT_S),
        ) as response:
            if response.status_code != 200 or _is_document(response):
                return await _failure(response)
            reader, end = self._dialect.reader(), None
            now_s = asyncio.get_running_loop().time
            try:
                async with asyncio.timeout(MOST_SILENT_S) as silence:
                    async for event in events(response.aiter_raw()):
                        heard = reader.read(event)
                        if heard.tokens and end is None:  # what it says after the end is of nobody
                            silence.reschedule(now_s() + MOST_SILENT_S)
                            self._say(heard)
                        end = end or heard.finish
            except TimeoutError:
                return Broke("broken", f"its stream has said no token for {MOST_SILENT_S:g} s")
        return Broke("broken", "its stream ended in the middle") if end is None else Ended(end)


def _is_document(response: httpx2.Response) -> bool:
    """Whether the answer is no stream of events: what went wrong, under a status that says that nothing
    did."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


async def _failure(response: httpx2.Response) -> Broke:
    body = b""
    with contextlib.suppress(TimeoutError):  # what has come by then is what it says
        async with asyncio.timeout(FAILURE_S):
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_ERROR_BYTES:
                    break
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        document = body[:200].decode("utf-8", "replace")
    return _by_status(
        response.status_code, told_error(document), retry_after_s(response.headers.get("retry-after"))
    )


def _by_status(status: int, message: str, retry_s: float | None) -> Broke:
    if status in (429, 503):
        return Broke("busy", f"answers {status}: {message}", retry_s)
    if 400 <= status < 500 and status not in (401, 403, 404, 405, 408):
        return Broke("refused", message)
    return Broke("broken", f"answers {status}: {message}")


def retry_after_s(told: str | None, now_at: Callable[[], float] = time.time) -> float | None:
    """Of a Retry-After header, seconds or a date, within bounds; None where it says nothing usable."""
    if told is None or len(told) > 64:
        return None
    if told.strip().isdecimal() and told.strip().isascii():
        return min(MOST_RETRY_S, float(told.strip()[:9]))
    try:
        at = email.utils.parsedate_to_datetime(told).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(MOST_RETRY_S, max(0.0, at - now_at()))
