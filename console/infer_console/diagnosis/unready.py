"""Replicas that should be there and are not: servers of others that do not answer, ours that begin again."""

from infer_engine.protocol import Replica

from infer_console.state.picture import Picture
from infer_console.view.format import age

#: One that was there before is missed after so long where others run it, since nothing loads here.
MISSED_S = 3.0
#: Any other, and those of ours, which load.
LATE_S = 10.0
#: As errors of a connection begin, by the names of their kinds.
_NOBODY = ("ConnectError", "ConnectTimeout", "does not answer", "ReadTimeout", "TimeoutError")


def is_upstream(replica: Replica) -> bool:
    """It is a server that others start and end, to which our gateway sends requests."""
    return replica.launcher == "upstream" or replica.upstream is not None


def of_upstreams(picture: Picture) -> bool:
    """All replicas are such servers: none can be added or started from here."""
    return bool(picture.replicas) and all(is_upstream(each.status) for each in picture.replicas.values())


def is_silent(replica: Replica) -> bool:
    """By its last error, nobody answers there at all."""
    return any(word in (replica.error or "") for word in _NOBODY)


def none_answers(picture: Picture) -> bool:
    """Nobody is there, by the last error of each."""
    return all(is_silent(each.status) for each in picture.replicas.values())


def none_ready_words(picture: Picture) -> tuple[str, str]:
    """Of upstreams none of which is ready: what is the matter, and what to do."""
    if none_answers(picture):
        return "no upstream answers", "start the servers"
    return "no upstream is ready", "see what each says"


def is_missed(replica: Replica) -> bool:
    """It has been starting for longer than it may, or again after it was there. One of ours that loads for
    the first time takes as long as its weights do."""
    if replica.state != "starting" or replica.unready_s is None:
        return False
    if is_upstream(replica):
        return replica.unready_s > (MISSED_S if replica.was_ready else LATE_S)
    return bool(replica.was_ready) and replica.unready_s > LATE_S


def missed_words(replica: Replica) -> str:
    """``llama.cpp at 127.0.0.1:8080 is not reachable for 2m: ConnectError: …``. Its error may be text of a
    server that is not ours."""
    lasts, error = age(replica.unready_s), replica.error
    if not is_upstream(replica):
        loads = f", loaded {replica.load_progress:.0%}" if replica.load_progress is not None else ""
        return f"starting again, not ready for {lasts}{loads}" + (f": {error}" if error else "")
    who = replica.upstream or "the server"
    if replica.device:
        who += f" at {replica.device}"
        if error:
            error = error.removeprefix(replica.device).removeprefix(": ").removeprefix(" does not answer: ")
    state = "not reachable" if is_silent(replica) else "not ready"
    return f"{who} is {state} for {lasts}" + (f": {error}" if error else "")


def missed_action(replica: Replica) -> str:
    """One short clause."""
    return "look at that server; it is looked for again" if is_upstream(replica) else "wait for ready"
