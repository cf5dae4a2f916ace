"""No way around the boundary: what the console's own sources may not contain."""

import re
from pathlib import Path

import infer_console

ROOT = Path(infer_console.__file__).parent
#: Widgets and calls that parse markup or print text by themselves.
MARKUP_SINKS = re.compile(
    r"\b(Static|Label|RichLog|Log|DataTable|OptionList|Tree|Button|Markdown|Header|Footer|Input|TextArea|TabPane)\("
    r"|\bnotify\(|add_row\(|border_(sub)?title\s*=|from_markup\(|\.markup\b|tooltip\s*="
)


def sources(*folders: str) -> list[tuple[Path, str]]:
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return [(path, path.read_text(encoding="utf-8")) for path in found]


def test_no_widget_that_parses_markup_is_used() -> None:
    for path, text in sources("ui", "view"):
        if path.parent.name == "benchmark":
            continue  # it paints Textual's own widgets, with texts of its own, to compare ours with them
        for number, line in enumerate(text.splitlines(), 1):
            assert not MARKUP_SINKS.search(line), f"{path.name}:{number}: {line.strip()}"


def test_safe_text_is_made_in_one_module() -> None:
    for path, text in sources("ui", "view", "terminal"):
        if path.name != "safe_text.py":
            assert "str.__new__" not in text, path.name
            assert "cast(SafeText" not in text, path.name


def test_views_take_no_type_checker_on_trust() -> None:
    """The type checker keeps plain strings out of rows; nothing may silence it."""
    for path, text in sources("view", "terminal", "ui"):
        assert "type: ignore" not in text, path.name
        assert "pyright: ignore" not in text, path.name


#: Modules in which escape sequences are written or named.
SEQUENCES = {
    "answers.py",
    "attention.py",
    "clipboard.py",
    "frame.py",
    "leaving.py",
    "link.py",
    "output_filter.py",
    "pastes.py",
    "pen.py",
    "quick_keys.py",
    "safe_text.py",
    "shifts.py",
    "web_driver.py",
}
#: Modules that ask something of where it is drawn, and write nothing there.
ASKING = {"output.py", "backpressure.py"}


def test_only_the_guard_writes_to_the_terminal_past_textual() -> None:
    for path, text in sources("ui", "view", "terminal"):
        if path.parent.name == "benchmark":
            continue  # it plays the terminal
        if path.name != "leaving.py":
            assert "\\x1b" not in text or path.name in SEQUENCES, path.name
            allowed = path.name in ASKING and "write(" not in text
            assert allowed or not re.search(r"sys\.(__)?std(out|err)|\bprint\(", text), path.name
