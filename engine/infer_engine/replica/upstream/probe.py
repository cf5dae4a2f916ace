"""Looks at somebody else's server: what it is, whether it serves our tokens, and how it fares."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from infer_engine.foreign.adapters import ADAPTERS, DENIED, Adapter, read, recognise
from infer_engine.foreign.address import Address
from infer_engine.foreign.asking import Answer, Asking, entry, together
from infer_engine.foreign.beside import beside
from infer_engine.foreign.not_understood import KeyWantedError, NotUnderstoodError
from infer_engine.foreign.reading import Reading
from infer_engine.idle_connections import limits
from infer_engine.model.sampling import Constraint, Sampling
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.replica.upstream.constraints import ALL as FOLLOWS_NONE
from infer_engine.replica.upstream.dialect import Ask, Dialect, Heard
from infer_engine.replica.upstream.events import SaidError, events, told_error
from infer_engine.replica.upstream.llamacpp import LlamaCpp
from infer_engine.replica.upstream.lost_tokens import LostTokens
from infer_engine.replica.upstream.sglang import Sglang
from infer_engine.replica.upstream.tls import proof_of
from infer_engine.replica.upstream.token_ids import token_ids
from infer_engine.replica.upstream.vllm import Vllm

#: Cut into tokens there and here, between names of special tokens: several scripts, spaces and digits.
TEXT = (
    "Hello, wörld!  1234\n\tdef f(x): return 漢字 😀; The quick brown fox jumps over thirteen lazy dogs, "
    'whereas Straße, Übermut and naïveté remain incomprehensible: {"key": [0.5, null]} // любовь\r\n\r\n'
)
MOST_SPECIAL = 8
#: An answer that no model gives unasked, and the schema that allows nothing else.
ONLY = "70317"
ONLY_THAT = '{"type": "integer", "enum": [70317]}'
#: How long a busy server may take for one token before it is asked again.
FIRST_TOKEN_S = 60.0
#: Tokens that a context has at least, where it is not told.
LEAST_CONTEXT = 2048
#: Metrics of our own gateway begin like that.
OURS = "infer_"


class Unsuitable(Exception):
    """It will not do, however often it is asked: ``str()`` says why."""


class Unready(Exception):
    """It does not answer as it should, which may change: ``str()`` says how. ``nobody`` listens there."""

    nobody = False


def _unanswered(error: Exception, what: str = "") -> Unready:
    unready = Unready(what + f"{type(error).__name__}: {str(error)[:120]}".rstrip(": "))
    unready.nobody = isinstance(error, httpx2.ConnectError)
    return unready


@dataclass(frozen=True, slots=True)
class Server:
    """What was found out of it when it was taken on."""

    adapter: Adapter
    dialect: Dialect
    reading: Reading
    lacks: frozenset[str]
    note: str = ""


class Probe:
    def __init__(self, address: Address, token: str | None, tokenizer: Tokenizer) -> None:
        self._address = address
        self._tokenizer = tokenizer
        transport = httpx2.AsyncHTTPTransport(verify=proof_of(address.base_url), limits=limits())
        self._asking = Asking(address.base_url, token, transport)
        self._adapter = ADAPTERS.get(address.kind)

    async def aclose(self) -> None:
        await self._asking.aclose()

    async def look(self) -> Reading:
        """How it fares now. Raise Unready, or Unsuitable for what is no such server."""
        try:
            if self._adapter is None:
                self._adapter = await recognise(self._asking)
            adapter = self._adapter
            paths = await together(*(self._asking.get(path) for path in adapter.paths))
            answers = {each.path: each for each in paths}
            size_bytes = sum(len(each.body) for each in paths)
            return await beside(lambda: self._read(adapter, answers), size_bytes)
        except KeyWantedError as error:
            raise Unsuitable(_wants_key(error.status)) from error
        except NotUnderstoodError as error:
            raise (Unready if "loading" in str(error) else Unsuitable)(str(error)) from error
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise _unanswered(error) from error

    def _read(self, adapter: Adapter, answers: dict[str, Answer]) -> Reading:
        self._check_told(adapter, answers)
        return read(adapter, answers)

    def _check_told(self, adapter: Adapter, answers: dict[str, Answer]) -> None:
        denied = [each.status for each in answers.values() if each.status in DENIED]
        if denied and not any(answers[path].told for path in adapter.essential):
            raise Unsuitable(_wants_key(denied[0]))
        if answers["/metrics"].page().has(OURS):
            raise Unsuitable("it is a gateway of infer-console: name the servers behind it instead")
        if not any(answers[path].told for path in adapter.essential):
            told = ", ".join(f"{path} {answers[path].status}" for path in adapter.essential)
            raise Unready(f"it answers {told}")

    async def take_on(self) -> Server:
        """Find out whether it serves what our tokenizer cuts. Raise Unready or Unsuitable."""
        reading = await self.look()
        adapter = self._adapter
        for engine in reading.engines:
            if engine.state != "ready":
                raise Unready(engine.error or f"it is {engine.state}")
        if adapter is None:
            raise Unready("what it is was not found out")
        dialect = await self._dialect(adapter, reading.context_length or LEAST_CONTEXT)
        try:
            note = await self._compare_tokens(dialect)
            dialect = await self._tried(dialect)
            lacks = await self._lacks(dialect)
        except NotUnderstoodError as error:
            raise Unsuitable(str(error)) from error
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise _unanswered(error) from error
        return Server(adapter, dialect, reading, lacks, note)

    async def _dialect(self, adapter: Adapter, context_length: int) -> Dialect:
        if adapter is ADAPTERS["llamacpp"]:
            return LlamaCpp(LostTokens(self._tokenizer).find, context_length)
        if adapter is ADAPTERS["sglang"]:
            return Sglang()
        try:
            listed = (await self._asking.get("/v1/models")).json()
        except (httpx2.HTTPError, OSError, NotUnderstoodError) as error:
            raise _unanswered(error, "/v1/models: ") from error
        model = entry(listed, "data", 0, "id")
        if not isinstance(model, str):
            raise Unready("/v1/models names no model")
        return Vllm(model)

    async def _compare_tokens(self, dialect: Dialect) -> str:
        """What could not be compared, in words."""
        special = [
            name for name in self._tokenizer.special_ids if name.startswith("<") and name.endswith(">")
        ][:MOST_SPECIAL]
        text = TEXT + "".join(f"{name}a b" for name in special)
        answer = await self._asking.post("/tokenize", dialect.tokenizing(text))
        if not answer.offered:
            return "its tokens could not be compared with ours: it has no /tokenize"
        if not answer.told:
            raise Unready(f"/tokenize answers {answer.status}: {_error(answer)}")
        theirs, ours = entry(answer.json(), "tokens"), self._tokenizer.encode(text, allow_special=True)
        if theirs == ours:
            return ""
        ids = token_ids(theirs)
        # What counts is which token an id is: where a text is cut, the gateway says for all of them.
        if ids is None or self._spelled(ids) != self._spelled(ours):
            raise Unsuitable(
                f"it has other tokens than ours: {_difference(theirs, ours)}; "
                "--model names the tokenizer of the model that it serves"
            )
        return (
            f"it would cut some texts otherwise than ours ({_difference(theirs, ours)}), of the same tokens"
        )

    def _spelled(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special=False)

    async def _tried(self, dialect: Dialect) -> Dialect:
        """As it is to be asked: an SGLang that does not take a seed says so by failing."""
        try:
            await self._try_tokens(dialect)
        except (Unready, Unsuitable):
            if not isinstance(dialect, Sglang):
                raise
            dialect = Sglang(seeds=False)
            await self._try_tokens(dialect)
        return dialect

    async def _try_tokens(self, dialect: Dialect) -> None:
        """One token, greedy: that it takes token ids and tells them is seen before anybody relies on it."""
        prompt = self._tokenizer.encode(TEXT)
        ask = Ask(prompt=prompt, max_tokens=1, sampling=Sampling(temperature=0.0))
        answer = await self._asking.post(dialect.path, dialect.body(ask), FIRST_TOKEN_S)
        if answer.status in (401, 403):
            raise Unsuitable(f"{dialect.path} answers {answer.status}: it wants a key (INFER_UPSTREAM_TOKEN)")
        if answer.status in (400, 404, 405, 422):
            raise Unsuitable(f"{dialect.path} answers {answer.status}: {_error(answer)}")
        heard = await _heard(dialect, answer)
        # A model may end at once: then there is no token.
        if not any(each.tokens or each.finish for each in heard):
            raise Unready(f"{dialect.path} answers with no stream of tokens")
        largest = max((token for each in heard for token in each.tokens), default=0)
        if largest >= self._tokenizer.vocab_size:
            raise Unsuitable(f"it says token {largest}, of {self._tokenizer.vocab_size} that we know")

    async def _lacks(self, dialect: Dialect) -> frozenset[str]:
        """What it cannot be asked for: what its kind cannot, and constraints where it does not keep to one. A
        server that is too old for the field leaves it out without a word."""
        return dialect.lacks if await self._keeps_to(dialect) else dialect.lacks | FOLLOWS_NONE

    async def _keeps_to(self, dialect: Dialect) -> bool:
        """One token of an answer that can only be ``ONLY``."""
        constrained = Sampling(temperature=0.0, constraint=Constraint(kind="json_schema", source=ONLY_THAT))
        ask = Ask(prompt=self._tokenizer.encode(TEXT), max_tokens=1, sampling=constrained)
        answer = await self._asking.post(dialect.path, dialect.body(ask), FIRST_TOKEN_S)
        if answer.status != 429 and 400 <= answer.status < 500:
            return False
        tokens = [token for each in await _heard(dialect, answer) for token in each.tokens]
        text = self._tokenizer.decode(tokens).strip()
        return bool(text) and ONLY.startswith(text)


async def _heard(dialect: Dialect, answer: Answer) -> list[Heard]:
    """Raise Unready where that is no stream."""
    if not answer.told:
        raise Unready(f"{dialect.path} answers {answer.status}: {_error(answer)}")
    reader = dialect.reader()
    try:
        return [reader.read(event) async for event in events(_whole(answer.body))]
    except SaidError as error:
        raise Unready(f"{dialect.path}: {error}") from error


def _wants_key(status: int) -> str:
    return f"it answers {status}: it wants a key (INFER_UPSTREAM_TOKEN)"


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body + b"\n"


def _error(answer: Answer) -> str:
    try:
        return told_error(msgspec.json.decode(answer.body))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return told_error(answer.body[:200].decode("utf-8", "replace"))


def _difference(theirs: Any, ours: list[int]) -> str:
    if not isinstance(theirs, list):
        return "it tells none"
    at = next((at for at, (left, right) in enumerate(zip(theirs, ours, strict=False)) if left != right), None)
    if at is None:
        return f"{len(theirs)} of them, {len(ours)} of ours"
    return f"number {at} is {str(theirs[at])[:12]}, ours is {ours[at]}"
