"""The GPU under a replica is not to be trusted, or slows itself down."""

from collections.abc import Iterator

from infer_engine.protocol import Replica

from infer_console.diagnosis.case import Case
from infer_console.state.finding import Finding, Proposal

#: As the server begins the reason of a fence that a GPU is to blame for.
ITS_GPU = "its GPU is bad"


def gpu_fault(case: Case) -> Iterator[Finding]:
    for name, shown in case.picture.replicas.items():
        replica = shown.status
        fenced = replica.spec.fenced if replica.spec is not None else None
        fatal = replica.state == "fenced" and bool(fenced) and ITS_GPU in (fenced or "")
        trouble = replica.gpu_trouble or (fenced if fatal else None)
        # Other servers are unwell for reasons of their own, which they do not tell.
        if trouble is None and (replica.health != "bad" or replica.foreign is not None):
            continue
        gpu = replica.gpu
        yield Finding(
            rule="gpu_fault",
            replica=name,
            evidence={
                "trouble": trouble,
                "temperature_c": gpu.temperature_c if gpu is not None else None,
                "slowdown_c": gpu.slowdown_c if gpu is not None else None,
                "uncorrectable_errors": gpu.uncorrectable_errors if gpu is not None else None,
                "xids": ", ".join(map(str, gpu.xids)) if gpu is not None and gpu.xids else None,
                "running": replica.running,
            },
            confidence=1.0,
            words=f"its GPU: {trouble or 'the server does not trust it'}"
            + ("; fenced, no process is started on it" if replica.state == "fenced" else ""),
            action=_drain(name, replica) if replica.state == "ready" else None,
        )


def _drain(name: str, replica: Replica) -> Proposal:
    return Proposal(
        name="drain",
        target=name,
        words=f"drain {name}",
        effect=f"its {replica.running or 0} running move, nothing new goes there",
    )
