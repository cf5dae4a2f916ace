"""Which server is which, and what is asked of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from infer_engine.foreign import llamacpp, sglang, vllm
from infer_engine.foreign.asking import Answer, Asking, entry, together
from infer_engine.foreign.beside import beside
from infer_engine.foreign.kind import ForeignKind
from infer_engine.foreign.not_understood import KeyWantedError, NotUnderstoodError
from infer_engine.foreign.ours import OUR_GATEWAY, OUR_PREFIX
from infer_engine.foreign.page import Page
from infer_engine.foreign.reading import Reading, apart

#: Statuses of a server that wants a key, or another one.
DENIED = (401, 403)


@dataclass(frozen=True, slots=True)
class Adapter:
    """``essential`` are paths of which one at least must be told; names of metrics begin with ``prefix``."""

    product: str
    prefix: str
    paths: tuple[str, ...]
    essential: tuple[str, ...]
    read: Callable[[Mapping[str, Answer], Page], Reading]


ADAPTERS: Mapping[ForeignKind, Adapter] = {
    "vllm": Adapter("vLLM", "vllm:", vllm.PATHS, ("/metrics",), vllm.read),
    "sglang": Adapter("SGLang", "sglang:", sglang.PATHS, ("/metrics", "/server_info"), sglang.read),
    "llamacpp": Adapter(
        "llama.cpp", "llamacpp:", llamacpp.PATHS, ("/metrics", "/slots", "/health"), llamacpp.read
    ),
}


def read(adapter: Adapter, answers: Mapping[str, Answer]) -> Reading:
    """Raise NotUnderstoodError for what this server cannot have written."""
    page = answers["/metrics"].page()
    if page.samples and not page.has(adapter.prefix):
        raise NotUnderstoodError(
            f"this does not look like {adapter.product}: nothing in /metrics begins with {adapter.prefix}"
            " (auto+http:// finds out what it is)"
        )
    reading = adapter.read(answers, page)
    product = OUR_GATEWAY if page.has(OUR_PREFIX) else reading.product
    return replace(reading, product=product, engines=apart(reading.engines))


async def recognise(asking: Asking) -> Adapter:
    """By its metrics' names, else by documents that only one of them has. Raise NotUnderstoodError where
    none fits, KeyWantedError where a key is wanted first."""
    paths = ("/metrics", "/server_info", "/props")
    metrics, server, props = await together(*(asking.get(path) for path in paths))
    size_bytes = sum(len(each.body) for each in (metrics, server, props))
    return await beside(lambda: _which(metrics, server, props), size_bytes)


def _which(metrics: Answer, server: Answer, props: Answer) -> Adapter:
    page = metrics.page()
    for adapter in ADAPTERS.values():
        if page.has(adapter.prefix):
            return adapter
    if props.told and entry(props.json(), "total_slots") is not None:
        return ADAPTERS["llamacpp"]
    if server.told and entry(server.json(), "model_path") is not None:
        return ADAPTERS["sglang"]
    if metrics.status in DENIED:
        raise KeyWantedError(metrics.status)
    if props.status == 503 and metrics.status == 503:
        raise NotUnderstoodError("it is loading its model: what it is will be asked again")
    raise NotUnderstoodError(
        f"neither vLLM, SGLang nor llama.cpp: /metrics answers {metrics.status},"
        f" /server_info {server.status}, /props {props.status}"
    )
