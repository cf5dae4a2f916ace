"""How many files the server may have open, and so how many connections it can take."""

import logging
import resource

log = logging.getLogger(__name__)

#: Files beside the gateway's connections: the control API's, replicas, logs, what libraries keep open.
OTHER_FILES = 1_280


def raise_file_limit(connections: int) -> int:
    """How many connections the gateway may have: every one is a file, and running out of them would fail
    those who are connected already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + OTHER_FILES
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    most = max(soft // 2, soft - OTHER_FILES)
    log.warning(
        "max_connections is %d, the limit on open files (%d) allows %d: taking those", connections, soft, most
    )
    return most
