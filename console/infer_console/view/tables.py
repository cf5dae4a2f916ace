"""The table of each screen that has one whose columns can be chosen, and the names of these."""

from infer_console.state.picture import Picture
from infer_console.view import replicas, requests, roster
from infer_console.view.columns import column_name
from infer_console.view.look import Look, ScreenName

#: Under these names a saved view keeps what is shown and hidden.
TABLES: dict[ScreenName, str] = {"fleet": "replicas", "replica": "roster", "requests": "requests"}
WIDE = 300


def column_names(picture: Picture, look: Look, screen: ScreenName) -> tuple[str, ...]:
    """Columns that this screen's table could have, without the first, which stays."""
    match screen:
        case "fleet":
            made = [column_name(column) for column in replicas.columns(None, True, 8)]
        case "requests":
            made = [column_name(column) for column in requests.columns(8, True)]
        case "replica":
            replica = picture.replicas.get(look.replica or "")
            columns = roster.columns(replica, {}, None, WIDE) if replica is not None else []
            made = [column_name(column) for column in columns]
        case _:
            made = []
    return tuple(dict.fromkeys(made[1:]))
