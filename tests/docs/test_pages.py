"""What the pages name is there: files, links, make's targets, names out of the code, verbs and options."""

import re
import shlex
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from infer_console.cli.entry import build_parser
from infer_console.view.keys import KEYS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Written by a program that the page tells how to run.
MADE = ("bench/results/",)
#: Of other people's programs: Ray, vLLM, Prometheus; and pages that are about those.
THEIRS = {"auth_token", "raw_logprobs", "scrape_timeout"}
ABOUT_OTHERS = {"foreign.md", "upstream.md"}

FILE = re.compile(r"(?<![\w/.~$:-])(?:engine|console|tests|bench|docs|deploy|themes)/[\w./-]+")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
NAME = re.compile(r"(?<![\w-])[a-z]+(?:_[a-z]+)+(?!\w)")
COMMAND = re.compile(r"(?:^|[\s/(])infer-console (.+)")
#: What ends a command in a shell, and what does in a sentence.
END = re.compile(r"\s(?:\||\|\||&&|&|;|#|>|2>|<)(?=\s|$)|…|,\s|\)")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def code(page: Path) -> Iterator[str]:
    """Its blocks, line by line (continued ones whole), and what stands between backticks."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    block = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
    for lines in block.findall(text):
        yield from lines.splitlines()
    yield from re.findall(r"`([^`\n]+)`", block.sub("", text))


@cache
def names() -> set[str]:
    """All words of what is written here in Python, or configured, and how its files are called."""
    found: set[str] = set()
    for folder in ("engine", "console", "tests", "bench", "deploy"):
        for path in (ROOT / folder).rglob("*"):
            found.add(path.stem)
            if path.suffix in (".py", ".toml", ".json", ".service", ".yml") and path != Path(__file__):
                found.update(re.findall(r"\w+_\w+", path.read_text(encoding="utf-8")))
    return found


def options(parser: ArgumentParser) -> set[str]:
    """Of all its verbs too."""
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for each in action.choices.values():
                found |= options(each)
    return found


@pages
def test_every_file_is_there(page: Path) -> None:
    named = {found.rstrip("./") for span in code(page) for found in FILE.findall(span)}
    assert [name for name in sorted(named) if not (ROOT / name).exists() and not name.startswith(MADE)] == []
    linked = {link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link}
    assert [link for link in sorted(linked) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in ABOUT_OTHERS], ids=lambda page: page.name
)
def test_every_name_of_several_words_is_in_the_code(page: Path) -> None:
    """Settings, fields, metrics, functions: what is called otherwise by now is found so."""
    named = {found for span in code(page) for found in NAME.findall(span)}
    assert sorted(named - names() - THEIRS) == []


def test_every_target_of_make_is_one() -> None:
    targets = set(
        re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = {
        found
        for page in PAGES
        for span in code(page)
        for found in re.findall(r"(?:^|\s)make ([a-z][a-z-]*)", span)
    }
    assert named
    assert sorted(named - targets) == []


def test_every_command_has_the_options_that_its_verb_takes() -> None:
    parser = build_parser()
    (verbs,) = (each for each in parser._actions if isinstance(each, _SubParsersAction))
    everywhere, seen = set(parser._option_string_actions), 0
    wrong: list[str] = []
    for page in PAGES:
        for command in (found for span in code(page) for found in COMMAND.findall(span)):
            words = shlex.split(END.split(f"{command} ")[0].replace("'", ""))
            verb = next((word for word in words if word in verbs.choices), None)
            allowed = everywhere | (options(verbs.choices[verb]) if verb is not None else set())
            given = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}
            wrong += [f"{page.name}: {command}: {option}" for option in sorted(given - allowed)]
            seen += 1
    assert wrong == []
    assert seen > 50


def test_every_name_that_a_keymap_knows_is_told() -> None:
    """Those that act are called as the actions, on every page."""
    told = set(re.findall(r"[a-z][a-z-]*", (ROOT / "docs/console.md").read_text(encoding="utf-8")))
    assert sorted({key.name for key in KEYS if key.kind == "look"} - told) == []
