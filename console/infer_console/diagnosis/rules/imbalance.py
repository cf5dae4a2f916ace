"""Requests queue on one replica while another has nothing to do."""

from collections.abc import Iterator

from infer_console.diagnosis.case import Case, interactive_waiting
from infer_console.state.finding import Finding, Proposal
from infer_console.view.format import count, seconds

#: Both for so long without a break: the router sees a moment's difference too, and corrects it.
HELD_S = 3.0


def router_imbalance(case: Case) -> Iterator[Finding]:
    fleet = case.picture.fleet
    if case.watched and fleet is not None and ", " in fleet.model:
        return  # they may serve different models, and not each other's requests
    ready = list(case.ready())
    busy = [(name, replica) for name, replica, track in ready if track.holds("busy", 1, HELD_S)]
    if not busy:
        return
    idle = [name for name, _, track in ready if track.holds("idle", 1, HELD_S)]
    if not idle:
        return
    name, worst = max(busy, key=lambda each: interactive_waiting(each[1]) or 0)
    waiting = interactive_waiting(worst) or 0
    sender = "whoever sends to them" if case.watched else "the router"
    running = [replica.running or 0 for _, replica, _ in ready]
    yield Finding(
        rule="router_imbalance",
        replicas=[each for each, _ in busy],
        evidence={
            "waiting": waiting,
            "oldest_wait_s": worst.queue_wait_s.oldest,
            "busiest": name,
            "idle_replicas": len(idle),
            "most_running": max(running),
            "least_running": min(running),
        },
        confidence=len(idle) / (len(idle) + len(busy)),
        words=f"{sender} sends too much to {name}: {waiting} wait there, oldest"
        f" {seconds(worst.queue_wait_s.oldest)}s, while {', '.join(idle[:4])} could take them",
        action=Proposal(
            name="drain",
            target=name,
            words=f"drain {name}, then undrain",
            effect=f"{count(waiting)} that wait go to {', '.join(idle[:2])} at once",
        ),
    )
