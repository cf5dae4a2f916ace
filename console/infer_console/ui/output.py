"""Where the console draws, and the last filter before it: a Textual line filter that sees every segment of
every widget."""

import sys

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from infer_console.terminal.output_filter import OutputFilter
from infer_console.terminal.plain_ascii import plain_ascii


class SegmentFilter(LineFilter):
    """Cleans the text of segments, and takes links off: no text of ours has any."""

    def __init__(self, output_filter: OutputFilter, *, ascii_only: bool = False) -> None:
        super().__init__()
        self._filter = output_filter
        self._ascii_only = ascii_only

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        clean = self._filter.clean
        cleaned: list[Segment] = []
        for segment in segments:
            text, style, control = segment
            if style is not None and style.link is not None:
                style = style.update_link(None)
                self._filter.caught += 1
            shown = clean(text)
            if self._ascii_only:
                shown = plain_ascii(shown)
            cleaned.append(
                segment if shown is text and style is segment.style else Segment(shown, style, control)
            )
        return cleaned


def draw_where_the_terminal_is() -> None:
    """Textual draws on stderr. Where that goes to a file, the terminal is what stdout is."""
    if sys.__stderr__ is None or not sys.__stderr__.isatty():
        sys.__stderr__ = sys.__stdout__
