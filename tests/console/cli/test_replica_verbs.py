"""fence, release, restart, scale and shed: from the words to the request."""

import pytest
from infer_console.cli.entry import main
from infer_console.cli.replica_verbs import VERBS
from infer_console.sources.routes import command_route
from infer_engine.protocol import Command, Fence, Release, Restart, Scale, Shed

PREFIX = "/control/v1"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Command, str | None, bool]]:
    """What a verb would send, and whether it would wait."""
    heard: list[tuple[Command, str | None, bool]] = []

    def send(_arguments: object, build: object, target: str | None, *, wait: bool) -> int:
        assert callable(build)
        heard.append((build("ann"), target, wait))
        return 0

    monkeypatch.setattr("infer_console.cli.replica_verbs.send", send)
    return heard


@pytest.mark.parametrize(
    ("words", "command", "target", "route"),
    [
        (
            "fence r1 --suspect --force --reason fan",
            Fence(suspect=True, force=True, reason="fan", actor="ann"),
            "r1",
            "/replicas/r1:fence",
        ),
        ("release r1 --dry-run", Release(dry_run=True, actor="ann"), "r1", "/replicas/r1:release"),
        (
            "restart r1 --deadline 2m --mode wait",
            Restart(mode="wait", deadline_s=120.0, actor="ann"),
            "r1",
            "/replicas/r1:restart",
        ),
        (
            "scale 3 --victim r0 --victim r4 --deadline 10s",
            Scale(replicas=3, victims=["r0", "r4"], deadline_s=10.0, actor="ann"),
            None,
            "/scale",
        ),
        ("shed on", Shed(on=True, actor="ann"), None, "/shed"),
        ("shed off", Shed(on=False, actor="ann"), None, "/shed"),
    ],
)
def test_words_become_a_command(
    sent: list[tuple[Command, str | None, bool]],
    words: str,
    command: Command,
    target: str | None,
    route: str,
) -> None:
    assert main(words.split()) == 0
    assert sent == [(command, target, True)]
    assert command_route(command, target) == ("POST", PREFIX + route)


def test_no_wait(sent: list[tuple[Command, str | None, bool]]) -> None:
    assert main(["scale", "2", "--no-wait"]) == 0
    assert sent[0][2] is False


@pytest.mark.parametrize(
    "words", ["scale many", "shed maybe", "restart r0 --deadline 2h", "fence", "restart r0 --mode fast"]
)
def test_wrong_words_are_refused(words: str, sent: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(words.split())
    except SystemExit as left:
        code = left.code
    assert code == 2
    assert sent == []
    assert capsys.readouterr().err


def test_every_verb_has_help() -> None:
    assert [verb.name for verb in VERBS] == ["fence", "release", "restart", "scale", "shed"]
