"""Which route of the control API carries which command."""

from urllib.parse import quote

from infer_engine.protocol import (
    Cancel,
    CancelWhere,
    ChangeLimits,
    ChangeTenant,
    Command,
    Drain,
    Fence,
    Inject,
    Preempt,
    Release,
    Restart,
    Scale,
    SetHeadroom,
    Shed,
    StopInjection,
    Undrain,
)

PREFIX = "/control/v1"


def command_route(command: Command, target: str | None) -> tuple[str, str]:
    """HTTP method and path. ``target`` is the replica (drain, fence, …), the request (cancel, preempt) or the
    tenant; ValueError when it is missing."""
    match command:
        case Drain():
            return "POST", f"{PREFIX}/replicas/{_id(command, target)}:drain"
        case Undrain():
            return "POST", f"{PREFIX}/replicas/{_id(command, target)}:undrain"
        case Fence():
            return "POST", f"{PREFIX}/replicas/{_id(command, target)}:fence"
        case Release():
            return "POST", f"{PREFIX}/replicas/{_id(command, target)}:release"
        case Restart():
            return "POST", f"{PREFIX}/replicas/{_id(command, target)}:restart"
        case Scale():
            return "POST", f"{PREFIX}/scale"
        case Shed():
            return "POST", f"{PREFIX}/shed"
        case Cancel():
            return "POST", f"{PREFIX}/requests/{_id(command, target)}:cancel"
        case CancelWhere():
            return "POST", f"{PREFIX}/requests:cancel"
        case Preempt():
            return "POST", f"{PREFIX}/requests/{_id(command, target)}:preempt"
        case SetHeadroom():
            return "POST", f"{PREFIX}/headroom"
        case Inject():
            return "POST", f"{PREFIX}/injections"
        case ChangeLimits():
            return "POST", f"{PREFIX}/limits"
        case ChangeTenant():
            return "POST", f"{PREFIX}/tenants/{_id(command, target)}"
        case StopInjection():
            return "DELETE", f"{PREFIX}/injections"


def needs_version(command: Command) -> bool:
    """Whether the server wants to know which version of a spec it is for."""
    return isinstance(command, Undrain | Release | Scale | Shed | SetHeadroom | ChangeLimits | ChangeTenant)


def replica_path(replica: str, part: str) -> str:
    return f"{PREFIX}/replicas/{quote(replica, safe='')}/{part}"


def request_path(request: str) -> str:
    return f"{PREFIX}/requests/{quote(request, safe='')}"


def operation_path(operation: str) -> str:
    return f"{PREFIX}/operations/{quote(operation, safe='')}"


def _id(command: Command, target: str | None) -> str:
    if not target:
        raise ValueError(f"{type(command).__name__} needs a target")
    return quote(target, safe="")
