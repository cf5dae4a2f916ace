"""What the engine server and its Ray driver say to each other, and what a host on a node answers: JSON, one
struct a line. Through Ray itself go these as text, and nothing else."""

from msgspec import Struct

#: Longest line either way: a configuration with the limits of many tenants stays far below.
MAX_LINE_BYTES = 1 << 20


class Node(Struct, frozen=True, kw_only=True):
    """A living node of the cluster, with all that it has, be it taken or not."""

    id: str
    address: str
    cpus: float
    gpus: float


# --- server to driver --------------------------------------------------------------------------------------


class Connect(Struct, frozen=True, kw_only=True, tag="connect"):
    """First, and once. ``check_auth``: refuse a cluster that asks nobody for its token."""

    address: str
    namespace: str
    check_auth: bool


class Place(Struct, frozen=True, kw_only=True, tag="place"):
    """Make an actor named ``name`` where there is room. ``key`` names this life in all that follows."""

    key: str
    name: str
    cpus: int
    gpus: int


class Run(Struct, frozen=True, kw_only=True, tag="run"):
    """The actor starts its replica with ``config``, a ReplicaConfig in JSON."""

    key: str
    config: str
    threads: int


class Look(Struct, frozen=True, kw_only=True, tag="look"):
    """Say now how much CPU it has used."""

    key: str


class End(Struct, frozen=True, kw_only=True, tag="end"):
    """End the replica and its actor: ``kindly`` first, or at once. Answered by Ended, whatever there was."""

    key: str
    kindly: bool


ToDriver = Connect | Place | Run | Look | End


# --- driver to server --------------------------------------------------------------------------------------


class Connected(Struct, frozen=True, kw_only=True, tag="connected"):
    """``address`` is this machine's, as the other nodes reach it."""

    address: str
    nodes: list[Node]


class NotConnected(Struct, frozen=True, kw_only=True, tag="not-connected"):
    """``see_log``: what it wrote to stderr last says why."""

    error: str
    see_log: bool = False


class Nodes(Struct, frozen=True, kw_only=True, tag="nodes"):
    """Those that live now; said when something has to be placed."""

    nodes: list[Node]


class Placed(Struct, frozen=True, kw_only=True, tag="placed"):
    """``public`` is the public key (hexadecimal) of the pair that the node made for this life; the secret one
    stays there."""

    key: str
    node: Node
    version: str
    public: str


class Running(Struct, frozen=True, kw_only=True, tag="running"):
    key: str
    pid: int


class Usage(Struct, frozen=True, kw_only=True, tag="usage"):
    key: str
    cpu_s: float | None


class Ended(Struct, frozen=True, kw_only=True, tag="ended"):
    """The last of this life. ``code`` None: the process did not end of being killed. ``cause``: why, where
    that is more than the code. ``oom`` None: not known."""

    key: str
    code: int | None
    cause: str | None = None
    oom: bool | None = None
    log_tail: str | None = None


FromDriver = Connected | NotConnected | Nodes | Placed | Running | Usage | Ended


# --- what a host answers -----------------------------------------------------------------------------------


class Hello(Struct, frozen=True, kw_only=True):
    node: str
    version: str
    public: str


class Began(Struct, frozen=True, kw_only=True):
    """``error`` in the place of a process that could not be started."""

    pid: int | None = None
    error: str | None = None


class Exit(Struct, frozen=True, kw_only=True):
    code: int | None
    oom: bool | None
    log_tail: str
