"""A server that is not ours and generates, in the test's own loop: it speaks one dialect, in events shaped as
real servers sent them (see tests/replica/upstream/recorded), and can be killed as abruptly as a process.

What it generates follows from the tokens before alone, so that any two of them agree.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from infer_engine.replica.upstream.probe import ONLY_THAT

Kind = Literal["vllm", "sglang", "llamacpp"]
#: Of a tokenizer: a text to its tokens.
Cut = Callable[[str], list[int]]
ORDINARY = range(40, 90)


def next_token(tokens: list[int]) -> int:
    """Of the whole sequence."""
    return ORDINARY[(sum(tokens[-7:]) * 31 + len(tokens) * 17) % len(ORDINARY)]


def answer_to(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


@dataclass
class FakeUpstream:
    """``gate`` holds every stream after ``free_tokens`` while it is clear; ``failures`` are answered, one
    each, before anything is generated: a status and headers."""

    kind: Kind
    cut: Cut
    slots: int = 4
    context: int = 512
    kv_blocks: int = 64
    model: str = "theirs"
    free_tokens: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    failures: list[tuple[int, dict[str, str]]] = field(default_factory=list[tuple[int, dict[str, str]]])
    why: str = "told to fail"
    #: Whole bodies of 200 that are answered instead, one each: to requests, and to the token that is asked
    #: when it is taken on.
    scripts: list[bytes] = field(default_factory=list[bytes])
    trials: list[bytes] = field(default_factory=list[bytes])
    #: Of the pages that are looked at.
    page_headers: dict[str, str] = field(default_factory=dict[str, str])
    metrics_extra: str = ""
    key: str | None = None
    #: It takes a seed; where it takes none, what has one fails.
    seeds: bool = True
    #: It keeps to what an answer must match: a schema with one value, or one text.
    follows: bool = True
    #: While it is clear no look is answered.
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    running: int = 0
    #: So many run at once, which it does not tell; others wait inside it.
    batch: int | None = None
    waiting: int = 0
    closed_by_client: int = 0
    counted: int = 0
    kv_used_ratio: float | None = None
    port: int = 0
    tls: ssl.SSLContext | None = None
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    def __post_init__(self) -> None:
        self.gate.set()
        self.answering.set()
        self._seats = asyncio.Semaphore(1_000 if self.batch is None else self.batch)

    @property
    def url(self) -> str:
        return f"{self.kind}+{'https://localhost' if self.tls else 'http://127.0.0.1'}:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    def kill(self) -> None:
        """As kill -9 does: nobody listens, every connection is reset."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        self.running = self.counted = 0

    def generated(self) -> list[Any]:
        """The bodies of what was asked of it, but for the tokens that are asked when it is taken on."""
        paths = {"vllm": "/v1/completions", "sglang": "/generate", "llamacpp": "/completion"}
        bodies = [body for path, body in self.asked if path == paths[self.kind]]
        return [body for body in bodies if _constraint(body) != json.loads(ONLY_THAT)][1:]

    # --- HTTP ----------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, ValueError):
            self.closed_by_client += 1
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        path = head[0].split()[1]
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        document = json.loads(body) if body else None
        self.asked.append((path, document))
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            await _answer(writer, 401, b'{"error":{"message":"no"}}')
            return True
        if path in ("/v1/completions", "/generate", "/completion"):
            await self._generate(document, reader, writer)
            return False  # what is read to notice that the client left would be the next request
        await self.answering.wait()
        page = self._page(path, document)
        await _answer(writer, 404 if page is None else 200, page or b"{}", self.page_headers)
        return True

    # --- looks ---------------------------------------------------------------------------------------------

    def _page(self, path: str, document: Any) -> bytes | None:
        if path == "/tokenize":
            text = document.get("content") or document.get("prompt")
            return json.dumps({"tokens": self.cut(text)}).encode()
        if path == "/metrics":
            return (self._metrics() + self.metrics_extra).encode()
        pages: dict[tuple[str, str], Any] = {
            ("vllm", "/v1/models"): {"data": [{"id": self.model, "max_model_len": self.context}]},
            ("vllm", "/health"): {},
            ("sglang", "/v1/models"): {"data": [{"id": self.model, "max_model_len": self.context}]},
            ("sglang", "/server_info"): {"max_running_requests": self.slots, "model_path": self.model},
            ("llamacpp", "/health"): {"status": "ok"},
            ("llamacpp", "/props"): {
                "total_slots": self.slots,
                "model_path": self.model,
                "default_generation_settings": {"n_ctx": self.context},
            },
        }
        page = pages.get((self.kind, path))
        return None if page is None else json.dumps(page).encode()

    def _metrics(self) -> str:
        if self.kind == "llamacpp":
            return (
                f"llamacpp:tokens_predicted_total {self.counted}\nllamacpp:n_decode_total {self.counted}\n"
                f"llamacpp:requests_processing {self.running}\nllamacpp:requests_deferred 0\n"
            )
        if self.kind == "sglang":
            return (
                f"sglang:num_running_reqs {self.running}\nsglang:num_queue_reqs 0\n"
                f"sglang:max_total_num_tokens {self.kv_blocks * 16}\n"
                f"sglang:kv_used_tokens {round((self.kv_used_ratio or 0.0) * self.kv_blocks * 16)}\n"
                f"sglang:generation_tokens_total {self.counted}\n"
            )
        return (
            f'vllm:num_requests_running{{engine="0"}} {self.running}\n'
            f'vllm:num_requests_waiting{{engine="0"}} {self.waiting}\n'
            f'vllm:kv_cache_usage_perc{{engine="0"}} {self.kv_used_ratio or 0.0}\n'
            f'vllm:cache_config_info{{engine="0",block_size="16",num_gpu_blocks="{self.kv_blocks}"}} 1\n'
            f'vllm:generation_tokens_total{{engine="0"}} {self.counted}\n'
        )

    # --- generating ----------------------------------------------------------------------------------------

    async def _generate(self, asked: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        prompt = asked["input_ids"] if self.kind == "sglang" else asked["prompt"]
        parameters = asked.get("sampling_params", asked)
        most = parameters.get("max_new_tokens", parameters.get("n_predict", parameters.get("max_tokens")))
        if most > 1 and self.failures:
            status, headers = self.failures.pop(0)
            await _answer(writer, status, json.dumps({"error": {"message": self.why}}).encode(), headers)
            return
        if not self.seeds and parameters.keys() & {"seed", "sampling_seed"}:
            await _answer(writer, 500, b'{"error":{"message":"unexpected keyword argument"}}')
            return
        scripted = self.scripts if most > 1 else self.trials
        if scripted:
            await _answer(writer, 200, scripted.pop(0))
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        gone = asyncio.create_task(_until_gone(reader))
        self.waiting += 1
        await self._seats.acquire()
        self.waiting -= 1
        self.running += 1
        try:
            tokens = list(prompt)
            wanted = self._wanted(asked)
            count = most if wanted is None else min(most, len(wanted))
            ending = "length" if wanted is None or count < len(wanted) else "stop"
            for number in range(1, count + 1):
                if number > self.free_tokens and most > 1:
                    opened = asyncio.create_task(self.gate.wait())
                    await asyncio.wait({opened, gone}, return_when=asyncio.FIRST_COMPLETED)
                    opened.cancel()
                await asyncio.sleep(0)
                if gone.done() or writer.transport.is_closing():
                    self.closed_by_client += 1
                    raise ConnectionResetError
                tokens.append(next_token(tokens) if wanted is None else wanted[number - 1])
                self.counted += 1
                await _chunk(writer, self._event(tokens[len(prompt) :], ending if number == count else None))
            await _chunk(writer, self._last(count, ending))
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            self.running = max(0, self.running - 1)
            self._seats.release()
            gone.cancel()
            await asyncio.wait({gone})

    def _wanted(self, asked: Any) -> list[int] | None:
        """The tokens of the only answer that the constraint allows."""
        constraint = _constraint(asked) if self.follows else None
        if constraint is None:
            return None
        return self.cut(constraint if isinstance(constraint, str) else json.dumps(constraint["enum"][0]))

    def _event(self, made: list[int], ending: str | None) -> Any:
        if self.kind == "llamacpp":
            return {
                "index": 0,
                "content": "x",
                "tokens": made[-1:],
                "stop": False,
                "tokens_predicted": len(made),
            }
        if self.kind == "sglang":
            finish = {"type": ending} if ending else None
            meta = {"completion_tokens": len(made), "prompt_tokens": 1, "finish_reason": finish}
            return {"text": "x" * len(made), "output_ids": made, "meta_info": meta}
        choice = {"index": 0, "text": "x", "finish_reason": ending, "token_ids": made[-1:]}
        return {"object": "text_completion", "choices": [choice]}

    def _last(self, count: int, ending: str) -> Any:
        if self.kind == "llamacpp":
            kind = "limit" if ending == "length" else "eos"
            return {"content": "", "tokens": [], "stop": True, "stop_type": kind, "tokens_predicted": count}
        return None


def _constraint(asked: Any) -> Any:
    """The schema, or the only text, that a request must match; None where it is free."""
    where = asked.get("sampling_params", asked)
    structured = where.get("structured_outputs", {})
    schema = structured.get("json") or where.get("json_schema")
    if schema is not None:
        return json.loads(schema) if isinstance(schema, str) else schema
    grammar = where.get("grammar")
    text = structured.get("regex") or where.get("regex")
    return grammar.removeprefix('root ::= "').removesuffix('"') if grammar else text


async def _until_gone(reader: asyncio.StreamReader) -> None:
    """A client that reads an answer says nothing more, but for closing."""
    try:
        await reader.read(1)
    except OSError:
        return


async def _chunk(writer: asyncio.StreamWriter, event: Any) -> None:
    data = b"data: [DONE]\n\n" if event is None else b"data: " + json.dumps(event).encode() + b"\n\n"
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


async def _answer(
    writer: asyncio.StreamWriter, status: int, body: bytes, headers: dict[str, str] | None = None
) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{lines}\r\n".encode() + body)
    await writer.drain()


@asynccontextmanager
async def fake_upstreams(*fakes: FakeUpstream) -> AsyncGenerator[None]:
    for fake in fakes:
        await fake.start()
    try:
        yield
    finally:
        for fake in fakes:
            fake.kill()
