"""The theme that is worn: the console's own and the user's, chosen, changed, followed while its file is
edited."""

import os
from collections.abc import Callable

from infer_console.ui.themes import (
    Theme,
    ThemeError,
    at_present,
    fitting_theme,
    load_themes,
    load_user_themes,
    reloaded,
    user_themes_directory,
)


class Theming:
    """``dress`` puts a theme on what is shown; ``say`` tells the operator."""

    def __init__(
        self,
        wanted: str | None,
        color_system: str | None,
        dress: Callable[[Theme], None],
        say: Callable[[str], None],
    ) -> None:
        own, troubles = load_user_themes(user_themes_directory())
        self._known = load_themes() | own
        self.troubles = [f"theme {trouble}" for trouble in troubles]
        self.name = wanted or fitting_theme(color_system, "NO_COLOR" in os.environ)
        self._dress = dress
        self._say = say

    @property
    def now(self) -> Theme:
        return self._known[self.name]

    def put(self, theme: Theme) -> None:
        """In the place of the one that is worn."""
        self._known[self.name] = theme

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._known)

    def next(self) -> None:
        names = list(self._known)
        self.use(names[(names.index(self.name) + 1) % len(names)])

    def use(self, name: str) -> None:
        """One of ``names``."""
        self.name = name
        self._dress(self.now)
        self._say(f"theme: {self.name}")

    def follow(self) -> None:
        """Somebody who edits the theme's file sees at once what it does."""
        theme = self.now
        try:
            written = reloaded(theme)
        except ThemeError as error:
            self._say(f"theme {error}")
            written = at_present(theme)  # said once: it is looked at again when it is written again
        if written is not None:
            self._known[self.name] = written
            self._dress(written)
