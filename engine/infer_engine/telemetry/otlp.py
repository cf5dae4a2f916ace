"""Traces in OpenTelemetry's words and on their way to a collector, over OTLP/HTTP.

The only module that knows the libraries of the extra ``otel``; imported when traces are asked for.
"""

import logging
import random
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from infer_engine.fleet.trace_parent import TraceParent
from infer_engine.telemetry.request_trace import RequestTrace, Span

#: For one batch, the exporter's own attempts included.
TIMEOUT_S = 5.0
NANOSECONDS = 1_000_000_000


class OtlpExporter:
    """Blocking: for a thread of its own. The libraries read ``OTEL_EXPORTER_OTLP_HEADERS`` and the variables
    for certificates by themselves."""

    def __init__(self, url: str, *, fleet: str, version: str, incarnation: str) -> None:
        # Whether the collector answers is said once by whoever exports, not with every batch.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter = OTLPSpanExporter(endpoint=url, timeout=TIMEOUT_S)
        self._resource = Resource(
            {
                "service.name": "infer-console",
                "service.namespace": fleet,
                "service.version": version,
                "service.instance.id": incarnation,
            }
        )
        self._scope = InstrumentationScope("infer_engine", version)

    def export(self, traces: Sequence[tuple[RequestTrace, TraceParent | None]]) -> bool:
        """Whether the collector took them."""
        spans = [span for trace, parent in traces for span in self._spans(trace, parent)]
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def stop(self) -> None:
        """From any thread: an attempt under way is not repeated."""
        self._exporter.shutdown()

    def _spans(self, trace: RequestTrace, parent: TraceParent | None) -> list[ReadableSpan]:
        trace_id = _random_id(128) if parent is None else parent.trace_id
        above = None if parent is None else _context(trace_id, parent.span_id, is_remote=True)
        own = _context(trace_id, _random_id(64))
        root = ReadableSpan(
            name=trace.whole.name,
            context=own,
            parent=above,
            resource=self._resource,
            attributes=trace.whole.attributes,
            events=[
                Event(moment.name, moment.attributes, timestamp=_nanoseconds(moment.at))
                for moment in trace.moments
            ],
            kind=SpanKind.SERVER,
            status=Status(StatusCode.UNSET) if trace.error is None else Status(StatusCode.ERROR, trace.error),
            start_time=_nanoseconds(trace.whole.began_at),
            end_time=_nanoseconds(trace.whole.ended_at),
            instrumentation_scope=self._scope,
        )
        return [root, *(self._stage(stage, own) for stage in trace.stages)]

    def _stage(self, stage: Span, parent: SpanContext) -> ReadableSpan:
        return ReadableSpan(
            name=stage.name,
            context=_context(parent.trace_id, _random_id(64)),
            parent=parent,
            resource=self._resource,
            attributes=stage.attributes,
            kind=SpanKind.INTERNAL,
            start_time=_nanoseconds(stage.began_at),
            end_time=_nanoseconds(stage.ended_at),
            instrumentation_scope=self._scope,
        )


def _context(trace_id: int, span_id: int, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=is_remote, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _random_id(bits: int) -> int:
    """Not 0, which stands for none."""
    return random.getrandbits(bits) or 1


def _nanoseconds(at: float) -> int:
    return int(at * NANOSECONDS)
