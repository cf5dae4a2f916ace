"""replica and serve --join-listen: what the engine is told, and what does not go together."""

import pytest
from infer_console.cli.entry import build_parser
from infer_console.cli.replica import words
from infer_console.cli.serve import build_settings
from infer_engine.__main__ import main
from infer_engine.settings import SettingsError


def test_the_engine_is_told_what_was_given_and_nothing_else() -> None:
    given = ["replica", "--join", "tcp://a:7600", "--server-key", "f", "--kv-blocks", "9", "--id=-x"]
    assert words(build_parser().parse_args(given)) == [
        "--join=tcp://a:7600",
        "--server-key=f",
        "--id=-x",
        "--kv-blocks=9",
    ]
    assert words(build_parser().parse_args(["replica", "--public-key"])) == ["--public-key"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--server-key=none",), "--join and --server-key are needed"),
        (
            ("--join=http://a:1", "--server-key=none"),
            "--join: 'http://a:1' was given: expected tcp://HOST:PORT",
        ),
        (("--join=a:99999", "--server-key=none"), "expected tcp://HOST:PORT"),
        (("--join=a:1", "--server-key=none", "--kv-blocks=0"), "kv_blocks"),
        (("--join=a:1", "--server-key=none", "--drain-s=-1"), "--drain-s: -1 was given: 0 to 3600"),
        (("--join=a:1", "--server-key=/nonexistent/key"), "/nonexistent/key: No such file"),
    ],
)
def test_a_wrong_word_is_named_before_anything_starts(
    given: tuple[str, ...], why: str, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replica", f"--key={tmp_path}/key", *given]) in (1, 2)
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"replicas": "0"}, "replicas is 0, which is for a server that others join"),
        ({"join_listen": "a:1"}, "join_listen and join_keys belong together"),
        ({"join_key": "f"}, "join_key is for join_listen"),
        (
            {"join_listen": "a:1", "join_keys": "f", "simulate": "70b@4×h100"},
            "simulated ones cannot be joined",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_named(given: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        build_settings(given)


def test_a_server_that_others_join_needs_no_replica_of_its_own() -> None:
    assert build_settings({"replicas": "0", "join_listen": "a:1", "join_keys": "f"}).replicas == 0
