"""What the command line knows of the moment: names to complete and to check against."""

from dataclasses import dataclass

from infer_console.state.picture import Picture
from infer_console.view.look import FLEET_SORTS, REQUEST_SORTS, ROSTER_SORTS, ScreenName


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    picture: Picture
    screen: ScreenName = "fleet"
    themes: tuple[str, ...] = ()
    #: Saved views, and fleets that this console is connected to.
    views: tuple[str, ...] = ()
    fleets: tuple[str, ...] = ()
    #: Columns of this screen's table, and those of them that are hidden.
    columns: tuple[str, ...] = ()

    @property
    def replicas(self) -> tuple[str, ...]:
        return tuple(self.picture.replicas)

    @property
    def requests(self) -> tuple[str, ...]:
        """Those that are listed now; there may be others."""
        listed = self.picture.listing.rows if self.picture.listing is not None else ()
        rosters = (row.id for replica in self.picture.replicas.values() for row in replica.rows.values())
        return tuple(dict.fromkeys((*rosters, *(row.id for row in (*self.picture.held, *listed)))))

    @property
    def tenants(self) -> tuple[str, ...]:
        """Those that are seen now; there may be others."""
        totals = self.picture.totals
        uses = totals.tenants if totals is not None else []
        return tuple(use.tenant for use in uses if use.tenants == 1 and use.tenant)

    @property
    def sorts(self) -> tuple[str, ...]:
        match self.screen:
            case "fleet":
                return FLEET_SORTS
            case "replica":
                return ROSTER_SORTS
            case "requests":
                return REQUEST_SORTS
            case _:
                return ()
