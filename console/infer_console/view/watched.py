"""What a server that is only watched cannot tell, and what would: our gateway in front of it."""

import textwrap

from infer_engine.foreign.ours import OUR_COMMAND, OUR_GATEWAY

from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.row import Line, Row

#: Servers named in one command; of more the first ones are.
MOST_NAMED = 3
#: Products that tell their requests.
TELL_REQUESTS = frozenset({"llama.cpp"})


def is_watched(picture: Picture) -> bool:
    return "watched" in picture.capabilities


def products(picture: Picture) -> SafeText:
    """``vLLM``, or ``vLLM and llama.cpp``."""
    names = dict.fromkeys(each.status.foreign for each in picture.replicas.values() if each.status.foreign)
    return safe(" and ".join(names), 60) if names else safe("this server")


def tells_requests(picture: Picture) -> bool:
    return any(each.status.foreign in TELL_REQUESTS for each in picture.replicas.values())


def upstream_command(replicas: list[ReplicaPicture]) -> SafeText:
    """What puts our gateway in front of them; for one of ours, what shows all of it."""
    if _is_our_gateway(replicas):
        return safe(OUR_COMMAND)
    urls = list(dict.fromkeys(each.status.watched_url or "URL" for each in replicas)) or ["URL"]
    words = [f"--upstream {safe(url, 120)}" for url in urls[:MOST_NAMED]]
    more = " …" if len(urls) > MOST_NAMED else ""
    return safe(f"infer-console serve {' '.join(words)}{more}")


def _is_our_gateway(replicas: list[ReplicaPicture]) -> bool:
    return {each.status.foreign for each in replicas} == {OUR_GATEWAY}


def needs_rows(what: str, replicas: list[ReplicaPicture], width: int, indent: int = 1) -> list[Row]:
    """``what`` is missing, and the command that brings it, over as many rows as it takes."""
    room = max(8, width - indent - 1)
    where = (
        "its own control API tells it"
        if _is_our_gateway(replicas)
        else "with our gateway in front of it there is"
    )
    rows = [
        Line(width).to(indent).put(safe(piece), "dim").row()
        for piece in textwrap.wrap(f"{what}; {where}:", room)
    ]
    command = textwrap.wrap(upstream_command(replicas), max(8, room - 2), break_on_hyphens=False)
    return rows + [Line(width).to(indent + 2).put(safe(piece), "accent").row() for piece in command[:4]]


def fleet_needs(what: str, picture: Picture, width: int) -> list[Row]:
    """The same for a screen of the whole fleet."""
    return needs_rows(what, list(picture.replicas.values()), width)
