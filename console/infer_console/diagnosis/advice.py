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
