"""All screens of the console, drawn as text from given pictures by the real screens."""

from collections.abc import Sequence

from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen
from infer_console.view.look import Look, ScreenName, Size
from infer_console.view.row import plain
from support.pilot import drive

SCREENS: tuple[ScreenName, ...] = (
    "fleet",
    "replica",
    "requests",
    "streams",
    "events",
    "traffic",
    "planner",
    "doctor",
)
SIZES = (Size(200, 50), Size(120, 36), Size(80, 24))


async def drawn(
    shown: Sequence[Picture], replica: str, sizes: Sequence[Size] = SIZES
) -> dict[tuple[ScreenName, Size], list[str]]:
    """Every picture on every screen in every size, at its own moment. Each starts with a fresh look on
    ``replica``."""
    made: dict[tuple[ScreenName, Size], list[str]] = {}
    async with drive(shown[0]) as driven:
        for name in SCREENS:
            driven.app.look.replica = replica
            driven.app.go(name)
            await driven.wait(name, lambda name=name: _name(driven.app.screen) == name)
            screen = driven.app.screen
            assert isinstance(screen, ConsoleScreen)
            for size in sizes:
                texts: list[str] = []
                for picture in shown:
                    driven.app.look = Look(replica=replica)
                    rows = screen.draw(picture, size, picture.at)
                    assert all(sum(span.cells for span in row) == size.width for row in rows), (name, size)
                    texts.append("\n".join(plain(row).rstrip() for row in rows))
                made[name, size] = texts
    return made


def _name(screen: object) -> ScreenName | None:
    return screen.name_in_look if isinstance(screen, ConsoleScreen) else None
