"""The one widget: paints rows, and repaints only those that changed."""

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from infer_console.ui.themes import Theme
from infer_console.view.row import Row


class Canvas(Widget):
    """Textual's Line API over a list of rows. An unchanged row keeps its strip, so nothing is rendered for
    it."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._rows: list[Row] = []
        self._strips: list[Strip] = []
        #: Rows handed to the terminal since the start, for tests and measurements.
        self.repainted_rows = 0

    @property
    def rows(self) -> list[Row]:
        """What is shown."""
        return self._rows

    def use_theme(self, theme: Theme) -> None:
        """Repaint everything in other colours."""
        self._theme = theme
        self._strips = [self._strip(row) for row in self._rows]
        self.repainted_rows += len(self._rows)
        self.refresh()

    def let_go(self) -> None:
        """Nobody sees it: what was rendered goes, a dozen strips a row with what Textual made of them. It is
        rendered anew when it is shown again."""
        self._rows, self._strips = [], []
        self._styles_cache.clear()

    def on_unmount(self) -> None:
        # Textual's cache of what was rendered outlives its widget: the arguments of an lru_cache hold up to
        # 1,024 of them, half a MiB for every dialog that was ever open.
        self.let_go()

    def show(self, rows: list[Row]) -> int:
        """Paint ``rows``; returns how many of them differ from what is shown. Neighbours go out together."""
        if len(rows) != len(self._rows):
            self._rows, self._strips = rows, [self._strip(row) for row in rows]
            self.repainted_rows += len(rows)
            self.refresh()
            return len(rows)
        changed = [y for y, row in enumerate(rows) if row != self._rows[y]]
        for y in changed:
            self._strips[y] = self._strip(rows[y])
        self._rows = rows
        self.repainted_rows += len(changed)
        start = 0
        for at, y in enumerate(changed):
            if at + 1 == len(changed) or changed[at + 1] != y + 1:
                self.refresh(Region(0, changed[start], self.size.width, y + 1 - changed[start]))
                start = at + 1
        return len(changed)

    def _strip(self, row: Row) -> Strip:
        theme = self._theme
        segments = [Segment(span.text, theme.style(span.role, span.tone)) for span in row]
        return Strip(segments, sum(span.cells for span in row))

    def render_line(self, y: int) -> Strip:
        if y < len(self._strips):
            return self._strips[y]
        ground: Style = self._theme.style("text", "plain")
        return Strip.blank(self.size.width, ground)
