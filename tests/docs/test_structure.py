"""docs/structure.md names every module, and none that is not there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_module_is_on_the_page_and_nothing_else() -> None:
    listed: set[str] = set()
    folder = ""
    for line in (ROOT / "docs/structure.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"### `(\S+)/`", line):
            folder = heading[1]
        elif folder and (row := re.match(r"\| `(\w+\.py)` \| (.+) \|", line)):
            assert row[2].strip(), line
            listed.add(f"{folder}/{row[1]}")
    modules = {
        str(path.relative_to(ROOT))
        for package in ("engine/infer_engine", "console/infer_console")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert listed == modules
