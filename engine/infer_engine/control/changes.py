"""Every command once: its verb, what it is done to, which spec it changes, what the pipeline asks of it."""

from infer_engine.control.commands import Commands
from infer_engine.control.demand import MOST_TRACE_BYTES
from infer_engine.control.mutation import Mutation, Path
from infer_engine.control.replica_commands import ReplicaCommands
from infer_engine.control.versions import REPLICAS
from infer_engine.protocol import (
    AcquireLease,
    Cancel,
    CancelWhere,
    ChangeLimits,
    ChangeTenant,
    Drain,
    Fence,
    Inject,
    Preempt,
    Release,
    ReleaseLease,
    RenewLease,
    Restart,
    Scale,
    SetHeadroom,
    Shed,
    StopInjection,
    Undrain,
)

FLEET = ("fleet", "fleet")


class Changes:
    """Draining asks for no version: in an incident it must not be refused because somebody else was there
    just before."""

    def __init__(self, commands: Commands, replicas: ReplicaCommands) -> None:
        self.fence = Mutation(
            verb="fence",
            body=Fence,
            target=_replica,
            apply=replicas.fence,
            changes=_replica_spec,
            reduces_risk=True,
        )
        self.release = Mutation(
            verb="release",
            body=Release,
            target=_replica,
            apply=replicas.release,
            changes=_replica_spec,
            needs_version=True,
        )
        self.restart = Mutation(
            verb="restart", body=Restart, target=_replica, apply=replicas.restart, changes=_replica_spec
        )
        self.scale = Mutation(
            verb="scale",
            body=Scale,
            target=lambda *_: FLEET,
            apply=replicas.scale,
            changes=lambda *_: "fleet",
            needs_version=True,
            fleet_wide=lambda _: True,
        )
        self.shed = Mutation(
            verb="shed",
            body=Shed,
            target=lambda *_: FLEET,
            apply=replicas.shed,
            changes=lambda *_: "fleet",
            needs_version=True,
            fleet_wide=lambda _: True,
        )
        self.drain = Mutation(
            verb="drain",
            body=Drain,
            target=_replica,
            apply=commands.drain,
            changes=_replica_spec,
            reduces_risk=True,
        )
        self.undrain = Mutation(
            verb="undrain",
            body=Undrain,
            target=_replica,
            apply=commands.undrain,
            changes=_replica_spec,
            needs_version=True,
        )
        self.headroom = Mutation(
            verb="headroom",
            body=SetHeadroom,
            target=_replica_or_fleet,
            apply=commands.headroom,
            changes=_replica_or_all,
            needs_version=True,
            fleet_wide=_is_of_all,
        )
        self.limits = Mutation(
            verb="limits",
            body=ChangeLimits,
            target=_replica_or_fleet,
            apply=commands.limits,
            changes=_replica_or_all,
            needs_version=True,
            fleet_wide=_is_of_all,
        )
        self.tenant = Mutation(
            verb="tenant",
            body=ChangeTenant,
            target=lambda path, _: ("tenant", path["name"]),
            apply=commands.tenant,
            changes=lambda path, _: f"tenant:{path['name']}",
            needs_version=True,
        )
        self.cancel = Mutation(
            verb="cancel",
            body=Cancel,
            target=lambda path, _: ("request", path["id"]),
            apply=commands.cancel,
            reduces_risk=True,
        )
        self.preempt = Mutation(
            verb="preempt",
            body=Preempt,
            target=lambda path, _: ("request", path["id"]),
            apply=commands.preempt,
        )
        self.cancel_where = Mutation(
            verb="cancel-where",
            body=CancelWhere,
            target=lambda _, command: ("requests", command.where),
            apply=commands.cancel_where,
            reduces_risk=True,
        )
        self.inject = Mutation(
            verb="inject",
            body=Inject,
            target=lambda *_: ("traffic", "fleet"),
            apply=commands.inject,
            most_bytes=MOST_TRACE_BYTES,
        )
        self.stop_injection = Mutation(
            verb="inject-stop",
            body=StopInjection,
            target=lambda *_: ("traffic", "fleet"),
            apply=commands.stop_injection,
            reduces_risk=True,
        )
        self.acquire_lease = Mutation(
            verb="lease", body=AcquireLease, target=lambda *_: FLEET, apply=commands.acquire_lease
        )
        self.renew_lease = Mutation(
            verb="lease-renew", body=RenewLease, target=lambda *_: FLEET, apply=commands.renew_lease
        )
        self.release_lease = Mutation(
            verb="lease-release",
            body=ReleaseLease,
            target=lambda *_: FLEET,
            apply=commands.release_lease,
            reduces_risk=True,
        )


def _replica(path: Path, _command: object) -> tuple[str, str]:
    return "replica", path["id"]


def _replica_spec(path: Path, _command: object) -> str:
    return f"replica:{path['id']}"


def _is_of_all(command: SetHeadroom | ChangeLimits) -> bool:
    return command.replica is None


def _replica_or_fleet(_path: Path, command: SetHeadroom | ChangeLimits) -> tuple[str, str]:
    return FLEET if command.replica is None else ("replica", command.replica)


def _replica_or_all(_path: Path, command: SetHeadroom | ChangeLimits) -> str:
    return REPLICAS if command.replica is None else f"replica:{command.replica}"
