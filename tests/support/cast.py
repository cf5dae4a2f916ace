"""Recordings of a terminal in asciinema's format, version 2: a line of JSON that says how large the terminal
is, then a line ``[seconds, "o", text]`` for each piece that the program wrote."""

import codecs
import json
from pathlib import Path
from typing import NamedTuple

import pyte


class Piece(NamedTuple):
    at_s: float
    text: str


class Cast(NamedTuple):
    columns: int
    rows: int
    title: str
    pieces: list[Piece]

    @property
    def length_s(self) -> float:
        return self.pieces[-1].at_s if self.pieces else 0.0

    def played(self) -> pyte.Screen:
        """What the terminal shows at the end."""
        screen = pyte.Screen(self.columns, self.rows)
        stream = pyte.Stream(screen)
        for piece in self.pieces:
            stream.feed(piece.text)
        return screen


def cut(raw: bytes, came: list[tuple[float, int]], gap_s: float, idle_s: float = 2.0) -> list[Piece]:
    """What a terminal read, as pieces that do not break a character; what came within ``gap_s`` is one piece,
    and nothing lasts longer than ``idle_s``."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces: list[Piece] = []
    begun, at_s, last, offset, held = came[0][0], 0.0, came[0][0], 0, ""
    for moment, end in came:
        if held and moment - begun > gap_s:
            pieces.append(Piece(round(at_s, 2), held))
            held = ""
        if not held:
            at_s += min(moment - last, idle_s)
            begun = last = moment
        held += decoder.decode(raw[offset:end])
        offset = end
    return [*pieces, Piece(round(at_s, 2), held)]


def write(path: Path, cast: Cast) -> None:
    header = {
        "version": 2,
        "width": cast.columns,
        "height": cast.rows,
        "title": cast.title,
        "env": {"TERM": "xterm-256color"},
    }
    lines = [header, *([piece.at_s, "o", piece.text] for piece in cast.pieces)]
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def read(path: Path) -> Cast:
    """Raise ValueError: the file is no such recording; ``str()`` says where."""
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    header = json.loads(first)
    if header.get("version") != 2:
        raise ValueError(f"{path}: version {header.get('version')!r}, not 2")
    pieces: list[Piece] = []
    for number, line in enumerate(rest, 2):
        at_s, kind, text = json.loads(line)
        if kind != "o" or (pieces and at_s < pieces[-1].at_s):
            raise ValueError(f"{path}:{number}: {kind!r} at {at_s} s")
        pieces.append(Piece(at_s, text))
    return Cast(header["width"], header["height"], header.get("title", ""), pieces)
