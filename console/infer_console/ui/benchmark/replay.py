"""The text on a terminal from the bytes that the console wrote: of its own few sequences, no others."""

import re
from codecs import getincrementaldecoder

_PIECE = re.compile(
    r"\x1b\[(?P<numbers>[0-9;]*)(?P<final>[A-Za-z])"
    r"|\x1b\[[?>=<][0-9;]*[$]?[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1bP[^\x1b]*\x1b\\"
    r"|(?P<text>[^\x1b]+)"
)


class Replay:
    """A grid of characters; colours are not kept. Wide characters are taken for one cell: the columns are
    said again after them."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self._cells = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes) -> None:
        text = self._rest + self._decode(data)
        at = 0
        while at < len(text):
            piece = _PIECE.match(text, at)
            if piece is None:
                break  # a sequence that is not complete yet
            at = piece.end()
            if piece["text"] is not None:
                self._put(piece["text"])
            elif piece["final"] is not None:
                self._move(piece["numbers"], piece["final"])
        self._rest = text[at:]

    def lines(self) -> list[str]:
        return ["".join(row) for row in self._cells]

    def _put(self, text: str) -> None:
        for character in text:
            if character == "\r":
                self._column = 0
            elif character == "\n":
                self._row = min(self._row + 1, self.rows - 1)
            elif character.isprintable() and self._row < self.rows and self._column < self.columns:
                self._cells[self._row][self._column] = character
                self._column += 1

    def _move(self, numbers: str, final: str) -> None:
        given = [int(number) for number in numbers.split(";") if number]
        if final == "H":
            self._row = (given[0] if given else 1) - 1
            self._column = (given[1] if len(given) > 1 else 1) - 1
        elif final == "G":
            self._column = (given[0] if given else 1) - 1
