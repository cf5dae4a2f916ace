"""What the operator looks at: the screen's focus, cursors, sort, filter and lens. No picture data lives
here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from infer_console.terminal.link import Pace
from infer_console.view.columns import ColumnChoice
from infer_console.view.kv_grid_form import KvGridForm
from infer_console.view.owners import OwnerLetters
from infer_console.view.scrubber import Scrub

#: Of the actions that were given other keys, by name.
Keymap = Mapping[str, tuple[str, ...]]
ScreenName = Literal["fleet", "replica", "requests", "streams", "events", "traffic", "planner", "doctor"]
Pane = Literal[
    "replicas",
    "events",
    "operations",
    "roster",
    "queue",
    "blocks",
    "requests",
    "timeline",
    "panels",
    "findings",
    "audit",
]
Lens = Literal["owner", "age", "sharing", "evict", "tier", "state"]
FleetSort = Literal[
    "worst",
    "waiting",
    "kv",
    "ttft",
    "itl",
    "oldest",
    "qwait",
    "running",
    "tokens",
    "preemptions",
    "step",
    "hits",
    "ttft50",
    "itl50",
    "state",
    "health",
    "id",
]
RosterSort = Literal["batch", "blocks", "age", "generated", "tenant"]
RequestSort = Literal["state", "age", "kv", "generated", "ttft", "tenant", "replica"]
Shown = Literal["all", "waiting", "running", "ended"]

PANES: dict[ScreenName, tuple[Pane, ...]] = {
    "fleet": ("replicas", "events"),
    "replica": ("roster", "queue", "blocks", "events"),
    "requests": ("requests",),
    "streams": (),
    "events": ("events", "operations"),
    "traffic": (),
    "planner": (),
    "doctor": ("findings", "audit"),
}
LENSES: tuple[Lens, ...] = get_args(Lens)
#: In the order of ``s``: what an operator asks for first comes first.
FLEET_SORTS: tuple[FleetSort, ...] = get_args(FleetSort)
ROSTER_SORTS: tuple[RosterSort, ...] = ("batch", "blocks", "age", "generated", "tenant")
REQUEST_SORTS: tuple[RequestSort, ...] = ("state", "age", "kv", "generated", "ttft", "tenant", "replica")
SHOWN: tuple[Shown, ...] = ("all", "waiting", "running", "ended")
MAX_FILTER = 64


class OtherFleet(NamedTuple):
    """A fleet that this console is connected to and does not show."""

    name: str
    critical: int = 0
    #: As of a picture's link.
    link: str = "live"


class Size(NamedTuple):
    width: int
    height: int


@dataclass(slots=True)
class Cursor:
    """A selection that follows an id, never a row.

    Until the operator moves it, it is on the first item. When the selected item leaves, nothing else is
    selected in its place: ``id`` becomes None and ``index`` remembers where it was, so the next move starts
    from there. An item that only a filter hides is still there: until it is seen again the cursor stands on
    the nearest one that is shown.
    """

    id: str | None = None
    index: int = 0
    moved: bool = False
    #: What the operator selected, while a filter hides it.
    hidden: str | None = None

    def follow(self, ids: Sequence[str], unfiltered: Sequence[str] = ()) -> None:
        """Bring the cursor up to date with the list now shown; ``unfiltered`` is that list in the same order
        as it would be without the filter."""
        if not self.moved:
            self.id, self.index = (ids[0], 0) if ids else (None, 0)
            return
        if self.hidden in ids or (self.hidden is not None and self.id is None):
            self.id, self.hidden = self.hidden, None
        if self.id is not None and self.id in ids:
            self.index = ids.index(self.id)
        elif self.id is not None and self.id in unfiltered:
            self.hidden = self.hidden or self.id
            self.id = self._nearest(ids, unfiltered)
            self.index = ids.index(self.id) if self.id is not None else 0
        else:
            self.id = self.hidden = None
            self.index = max(0, min(self.index, len(ids) - 1))

    def _nearest(self, ids: Sequence[str], unfiltered: Sequence[str]) -> str | None:
        """The item shown that stands nearest to the hidden one; None where the filter hides all."""
        place = {id: number for number, id in enumerate(unfiltered)}
        at = place.get(self.hidden or "", self.index)
        return min(ids, key=lambda id: abs(place.get(id, at) - at), default=None)

    def move(self, ids: Sequence[str], by: int) -> None:
        """Select the item ``by`` rows further, stopping at the ends."""
        self.follow(ids)
        self.hidden = None
        if not ids:
            return
        # From where a vanished item was, one step down is the row that took its place.
        start = self.index if self.id is not None or by < 0 else self.index - 1
        self.index = max(0, min(start + by, len(ids) - 1))
        self.id, self.moved = ids[self.index], True

    def select(self, ids: Sequence[str], wanted: str) -> bool:
        """Put the cursor on ``wanted``; False where it is not in the list."""
        if wanted not in ids:
            return False
        self.id, self.index, self.moved, self.hidden = wanted, ids.index(wanted), True, None
        return True


@dataclass(slots=True)
class Look:
    replica: str | None = None
    focus: dict[ScreenName, Pane] = field(
        default_factory=lambda: {name: panes[0] for name, panes in PANES.items() if panes}
    )
    cursors: dict[tuple[ScreenName, Pane], Cursor] = field(default_factory=dict)
    fleet_sort: FleetSort = "worst"
    roster_sort: RosterSort = "batch"
    lens: Lens = "owner"
    request_sort: RequestSort = "state"
    #: Which requests the Requests screen lists.
    shown: Shown = "all"
    #: The request whose timeline is in the place of the list, and the screen to go back to from there.
    timeline: str | None = None
    timeline_from: ScreenName = "requests"
    #: Kinds of events that are not shown.
    hidden_kinds: set[str] = field(default_factory=set[str])
    #: Generated text is shown, not only when its tokens came.
    revealed: bool = False
    filter: str = ""
    #: The filter line is open and takes the keys.
    filtering: bool = False
    paused: bool = False
    #: The moment that is shown, where it is not now.
    scrub: Scrub | None = None
    #: Requests picked for the Streams screen, in the order they were picked.
    marked: list[str] = field(default_factory=list)
    #: The one request whose tokens are shown, over what was picked.
    zoomed: str | None = None
    #: By table: which columns are shown and hidden beyond what the width decides.
    columns: dict[str, ColumnChoice] = field(default_factory=dict[str, ColumnChoice])
    #: By name of an action: its keys in the place of the usual ones.
    keymap: Keymap = field(default_factory=dict[str, tuple[str, ...]])
    #: The operator's sentence on the Planner screen.
    kv_grid: KvGridForm = field(default_factory=KvGridForm)
    #: Fleets that are not shown; empty where there is one.
    others: tuple[OtherFleet, ...] = ()
    owners: OwnerLetters = field(default_factory=OwnerLetters)
    #: Frames skipped because the terminal was behind.
    skipped_frames: int = 0
    #: What the terminal is given; None where it is not known.
    pace: Pace | None = None

    def forget_selections(self) -> None:
        """What was selected is of another fleet; order, lens, columns and keys stay."""
        self.replica = self.timeline = self.zoomed = None
        self.cursors.clear()
        self.marked.clear()
        self.revealed, self.filter, self.owners = False, "", OwnerLetters()

    def cursor(self, screen: ScreenName, pane: Pane) -> Cursor:
        return self.cursors.setdefault((screen, pane), Cursor())

    def pane(self, screen: ScreenName) -> Pane | None:
        return self.focus.get(screen)

    def next_pane(self, screen: ScreenName, by: int = 1) -> None:
        panes = PANES[screen]
        if panes:
            self.focus[screen] = panes[(panes.index(self.focus[screen]) + by) % len(panes)]

    def mark(self, request: str) -> None:
        """Pick a request, or drop it again."""
        if request in self.marked:
            self.marked.remove(request)
        elif len(self.marked) < 16:
            self.marked.append(request)
