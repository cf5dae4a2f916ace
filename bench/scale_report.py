"""What one step report costs the server: from a replica's bytes to the tokens of its requests, the
histograms of ``/metrics`` and the end of the batch of messages. No socket, no HTTP, no step loops."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns

from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import GenerationSpec
from infer_engine.model.sampling import Sampling
from infer_engine.protocol import GatewayStatus
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import Admitted, FromReplica, Ready, StepReport, TokenOut, ToReplica
from infer_engine.replica.server_link import OnMessage, Sent
from infer_engine.replica.wire import decode_from_replica, encode
from infer_engine.runner.runner import RunnerInfo
from infer_engine.settings import ServerSettings
from infer_engine.telemetry.prometheus import Metrics

REPORTS = 400
REPORTING = 20
_INFO = RunnerInfo(
    model="none",
    vocab_size=100,
    context_length=100_000,
    kv_blocks=20_000,
    block_size=16,
    kv_bytes_per_token=1,
    weight_bytes=0,
    device="none",
    dtype="none",
)


class Link:
    """Delivers what it is given, and swallows what the fleet says."""

    endpoint = "bench"
    malformed = 0

    def __init__(self, _directory: Path, on_message: OnMessage, on_batch_end: Callable[[], None]) -> None:
        self.on_message, self.on_batch_end = on_message, on_batch_end

    def open(self) -> None: ...

    def close(self) -> None: ...

    def send(self, peer: bytes, message: ToReplica) -> Sent:
        return "sent"


class ReportedFleet:
    """``replicas`` that are ready, of which the first REPORTING have ``running`` requests each; none is a
    process."""

    def __init__(self, replicas: int, running: int) -> None:
        self._links: list[Link] = []
        self._step = 1
        with TemporaryDirectory() as directory:
            self.fleet = Fleet(
                # More than 64 only when they are simulated.
                ServerSettings(replicas=replicas, simulate="llama-70b@4xh100"),
                run_dir=Path(directory),
                link=self._link,
                clock=lambda: 1.0,
            )
        Metrics(self.fleet, "none", lambda: GatewayStatus())
        self._handles = self.fleet.members.handles
        handles = list(self._handles.values())
        for handle in handles[:REPORTING]:
            self._ready(handle)
        spec = GenerationSpec(prompt=(1, 2, 3), max_tokens=4_000, sampling=Sampling(), stop_token_ids=())
        self._requests: dict[str, list[str]] = {each.id: [] for each in handles[:REPORTING]}
        self._tokens = dict.fromkeys(self._requests, 0)
        for _ in range(len(self._requests) * running):
            generation = self.fleet.submit(spec)
            self._requests[generation.replica or ""].append(generation.id)
        for handle in handles[REPORTING:]:
            self._ready(handle)
        for replica, requests in self._requests.items():
            self._report(replica, [Admitted(each, 1, False) for each in requests])

    def report_us(self) -> float:
        """Microseconds, the mean of many, each from another replica as far as there are so many, and a batch
        of its own."""
        ids = list(self._requests)
        taken_ns = sum(self._report(ids[number % len(ids)]) for number in range(REPORTS))
        return taken_ns / REPORTS / 1_000

    def _ready(self, handle: ReplicaHandle) -> None:
        handle.begin(1)
        ready = Ready(
            incarnation=1,
            info=_INFO,
            admit_limit=18_000,
            batch_limit=13_000,
            max_running=256,
            token_budget=2_048,
        )
        self._deliver(handle.identity, ready)

    def _link(self, directory: Path, on_message: OnMessage, on_batch_end: Callable[[], None]) -> Link:
        self._links.append(Link(directory, on_message, on_batch_end))
        return self._links[-1]

    def _report(self, replica: str, admitted: list[Admitted] | None = None) -> int:
        """Of one more token for each of its requests; nanoseconds."""
        self._step += 1
        index = self._tokens[replica]
        self._tokens[replica] += 1
        requests = self._requests[replica]
        report = StepReport(
            incarnation=1,
            step=self._step,
            duration_s=0.03,
            running=len(requests),
            waiting=0,
            decode_tokens=len(requests),
            prefill_tokens=0,
            kv_used=100,
            kv_free=19_900,
            kv_cached=0,
            admitted=admitted or [],
            tokens=[TokenOut(each, 7, index) for each in requests],
        )
        return self._deliver(self._handles[replica].identity, report)

    def _deliver(self, identity: bytes, message: FromReplica) -> int:
        """Nanoseconds."""
        data = encode(message)
        link = self._links[0]
        began_ns = perf_counter_ns()
        link.on_message(identity, decode_from_replica(data))
        link.on_batch_end()
        return perf_counter_ns() - began_ns
