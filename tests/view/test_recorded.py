"""Every screen in three sizes at one moment of the recorded incident. ``UPDATE_GOLDEN=1 pytest
tests/view/test_recorded.py`` writes them anew; look at the difference."""

import os
from pathlib import Path

from support.incident import SHOWN_S, replayed
from support.screens import drawn

GOLDEN = Path(__file__).parent / "recorded"


async def test_every_screen_shows_the_incident() -> None:
    timeline = replayed()
    span = timeline.span()
    assert span is not None
    picture = timeline.picture(span[0] + SHOWN_S, ("r0",))
    assert picture is not None
    differing: list[str] = []
    for (screen, size), (text,) in (await drawn([picture], "r0")).items():
        path = GOLDEN / f"{screen}-{size.width}x{size.height}.txt"
        if os.environ.get("UPDATE_GOLDEN"):
            GOLDEN.mkdir(exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
        if path.read_text(encoding="utf-8") != text + "\n":
            differing.append(path.name)
    assert differing == []
