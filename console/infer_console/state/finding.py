"""What the doctor found: one cause, with the numbers that speak for it and what to do about it."""

import shlex

from msgspec import Struct

#: A number of a finding's evidence, or a name; None is unknown. Times are seconds and say so in their names.
Evidence = float | str | None


class Proposal(Struct, frozen=True, kw_only=True):
    """An action of the registry, or a verb of the command line where the console has no dialog for it, with
    what to give it, in the action's own words. ``effect`` is an estimate from the numbers shown; the action's
    dry run has the last word. ``target`` may be a tenant's name: untrusted text."""

    name: str
    target: str | None = None
    params: dict[str, str] = {}
    #: ``shed batch``: what is done, in a few words.
    words: str
    effect: str

    @property
    def command(self) -> str:
        """The same as a line for a shell."""
        params = dict(self.params)
        words = ["infer-console", self.name]
        match self.name:
            case "headroom":
                words.append(params.pop("headroom", ""))
                words += ["--replica", self.target] if self.target else []
            case "shed":
                words.append("on")
            case "inject-stop":
                words[-1:] = ["inject", "--stop"]
            case "scale":
                words.append(params.pop("replicas", ""))
            case "limits":
                words += [f"{name}={value}" for name, value in params.items()]
                words += ["--replica", self.target] if self.target else []
                params.clear()
            case "tenant":
                words += [self.target or "*"]
                for name, value in params.items():
                    words += ["--limit", f"{name}={value}{'%' if name == 'kv_share' else ''}"]
                params.clear()
            case _:
                words += [self.target] if self.target else []
        for name, value in params.items():
            words += [f"--{name.replace('_', '-')}", value]
        return shlex.join(word for word in words if word)


class Finding(Struct, frozen=True, kw_only=True):
    """``confidence`` is 0 to 1: the share of the evidence that speaks for this cause, as its rule counts it.
    ``words`` and the names in ``evidence`` may hold text of tenants: untrusted."""

    rule: str
    #: None where it concerns the fleet.
    replica: str | None = None
    #: Others that it concerns.
    replicas: list[str] = []
    #: Since when it is found; None where it was there before anybody looked.
    since_s: float | None = None
    evidence: dict[str, Evidence] = {}
    confidence: float
    words: str
    action: Proposal | None = None
    #: Rules whose findings it accounts for; they are not told beside it.
    explains: list[str] = []

    @property
    def id(self) -> str:
        """The same for as long as it lasts."""
        return f"{self.rule}/{self.replica or ''}"

    def concerns(self, replica: str | None) -> bool:
        """Whether it is about that replica: its own, or of the whole fleet."""
        return replica is None or self.replica in (replica, None) or replica in self.replicas
