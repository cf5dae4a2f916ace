"""Questions to somebody else's server: bounded in time and in bytes. Whoever only watches GETs."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec

from infer_engine.foreign.not_understood import NotUnderstoodError
from infer_engine.foreign.page import Page

CONNECT_TIMEOUT_S = 3.0
#: A server that is busy answers late; one that answers later than this has not told anything.
ANSWER_TIMEOUT_S = 5.0
#: All of an answer, however it drips.
WHOLE_ANSWER_S = 10.0
MAX_PAGE_BYTES = 4 * 1024 * 1024
#: Pieces that are taken before others get a turn: those that are there already are read without waiting.
PIECES_A_TURN = 64
#: A small answer must not become a large one here.
PLAIN = "identity"


@dataclass(frozen=True, slots=True)
class Answer:
    """``status`` and body; what is not 200 is *not told*, and 404, 405 and 501 say that it never will be."""

    path: str
    status: int
    body: bytes

    @property
    def told(self) -> bool:
        return self.status == 200

    @property
    def offered(self) -> bool:
        return self.status not in (404, 405, 501)

    def json(self) -> Any:
        """Raise NotUnderstoodError for what is none. None where it was not told."""
        if not self.told:
            return None
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise NotUnderstoodError(f"{self.path} is not JSON: {str(error)[:80]}") from error

    def page(self) -> Page:
        return Page.read(self.body.decode("utf-8", "replace")) if self.told else Page()


class Asking:
    """Raises what httpx2 raises, and NotUnderstoodError for a page without an end. ``token`` goes along with
    every question. ``netloc`` is what the server is called where ``base_url`` has only its address: it is
    asked, and has to prove itself, by that name."""

    def __init__(
        self,
        base_url: str,
        token: str | None,
        transport: httpx2.AsyncBaseTransport,
        netloc: str | None = None,
    ) -> None:
        headers = {"accept-encoding": PLAIN}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        self._extensions: dict[str, Any] = {}
        if netloc is not None:
            headers["host"] = netloc
            self._extensions["sni_hostname"] = urlsplit(f"//{netloc}").hostname
        self._http = httpx2.AsyncClient(
            base_url=base_url,
            transport=transport,
            timeout=httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, pool=CONNECT_TIMEOUT_S),
            headers=headers,
            trust_env=False,
        )

    async def get(self, path: str) -> Answer:
        return await self._ask("GET", path, None)

    async def post(self, path: str, document: Any, timeout_s: float | None = None) -> Answer:
        """``timeout_s`` where the answer may take longer than one to a look."""
        return await self._ask("POST", path, msgspec.json.encode(document), timeout_s)

    async def _ask(
        self, method: str, path: str, content: bytes | None, timeout_s: float | None = None
    ) -> Answer:
        within_s = max(WHOLE_ANSWER_S, timeout_s or 0.0)
        try:
            async with asyncio.timeout(within_s):
                return await self._whole(method, path, content, timeout_s)
        except TimeoutError as error:
            raise httpx2.ReadTimeout(f"{path} was not told within {within_s:g} s") from error

    async def _whole(self, method: str, path: str, content: bytes | None, timeout_s: float | None) -> Answer:
        body = bytearray()
        headers = {} if content is None else {"content-type": "application/json"}
        timeout = httpx2.Timeout(
            timeout_s or ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, pool=CONNECT_TIMEOUT_S
        )
        async with self._http.stream(
            method,
            path,
            content=content,
            headers=headers,
            timeout=timeout,
            extensions=self._extensions,
        ) as response:
            encoding = response.headers.get("content-encoding", PLAIN)
            if encoding != PLAIN:
                raise NotUnderstoodError(f"{path} is answered as {ascii(encoding)[1:-1][:20]}, unasked")
            pieces = 0
            async for chunk in response.aiter_raw():
                pieces += 1
                if pieces % PIECES_A_TURN == 0:
                    await asyncio.sleep(0)
                body += chunk
                if len(body) > MAX_PAGE_BYTES:
                    raise NotUnderstoodError(f"{path} is longer than {MAX_PAGE_BYTES} bytes")
            return Answer(path, response.status_code, bytes(body))

    async def aclose(self) -> None:
        await self._http.aclose()


async def together(*asked: Awaitable[Answer]) -> list[Answer]:
    """All answers, in order, or the first failure among them once every question has come to its end: none is
    left behind that still holds a connection."""
    came = await asyncio.gather(*asked, return_exceptions=True)
    answers: list[Answer] = []
    for each in came:
        if isinstance(each, BaseException):
            raise each
        answers.append(each)
    return answers


def entry(document: Any, *path: str | int) -> Any:
    """What lies there in somebody else's JSON; None where there is no such thing."""
    for step in path:
        if isinstance(step, int):
            if not isinstance(document, list) or not -len(document) <= step < len(document):
                return None
            document = document[step]
        elif isinstance(document, dict):
            document = document.get(step)
        else:
            return None
    return document


def integer(value: Any) -> int | None:
    """A count out of somebody else's JSON."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < 2**53 else None


def text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None
