"""Actions that several rules propose."""

from infer_console.diagnosis.case import Case
from infer_console.diagnosis.unready import of_upstreams
from infer_console.state.finding import Proposal
from infer_console.view.format import age


def one_more(case: Case, effect: str) -> Proposal | None:
    """One replica more, where it is known how many are wanted. ``effect`` is what it brings once it is
    ready."""
    fleet = case.picture.fleet
    # How many upstreams there are is not ours to say.
    if fleet is None or fleet.spec is None or of_upstreams(case.picture):
        return None
    wanted = fleet.spec.replicas + 1
    boot_s = fleet.scaling.boot_s if fleet.scaling is not None else None
    when = f" in {age(boot_s)}" if boot_s else ""
    return Proposal(
        name="scale",
        params={"replicas": str(wanted)},
        words=f"scale {wanted - 1}→{wanted}",
        effect=f"{effect}{when}",
    )


#: Share of what is there that test traffic has where it is the load.
TESTS = 0.5


def stop_tests(case: Case) -> Proposal | None:
    """Where most of what runs and waits is test traffic, it is the first to go."""
    fleet, totals = case.picture.fleet, case.picture.totals
    if fleet is None or totals is None or not fleet.traffic.running:
        return None
    tests = fleet.traffic.in_flight
    if not tests or tests < TESTS * ((totals.running or 0) + (totals.waiting or 0)):
        return None
    return Proposal(
        name="inject-stop",
        words="stop the test traffic (I)",
        effect=f"{tests} test requests end at once, {fleet.traffic.profile or 'test'} traffic is the load",
    )
