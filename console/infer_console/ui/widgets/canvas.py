"""The one widget: paints rows, and repaints only those that changed."""

from rich.segment import Segment
from rich.style import Style
from textual._styles_cache import StylesCache
from textual.color import Color
from textual.geometry import Region
from textual.strip import Strip
from textual.style import Style as Ground
from textual.widget import Widget

from infer_console.ui.themes import Theme
from infer_console.view.row import Row


class RenderedLines(StylesCache):
    """What Textual made of a widget's lines. Its own outlives the widget: an lru_cache has it among its
    arguments, up to 1,024 of them, half a MiB for every dialog that was ever open
    (Textualize/textual#6665)."""

    def __init__(self) -> None:
        super().__init__()
        # Found before the method of the class, whose cache would keep this.
        vars(self)["get_inner_outer"] = _grounds


def _grounds(base_background: Color, background: Color) -> tuple[Ground, Ground]:
    return StylesCache.get_inner_outer(StylesCache, base_background, background)


class Canvas(Widget):
    """Textual's Line API over a list of rows. An unchanged row keeps its strip, so nothing is rendered for
    it."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._styles_cache = RenderedLines()
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
