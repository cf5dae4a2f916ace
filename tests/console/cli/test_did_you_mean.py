"""Mistyped verbs, options and choices."""

import pytest
from infer_console.cli import codes
from infer_console.cli.entry import main


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["reqests"], "requests"),
        (["Drian", "r0"], "drain"),
        (["requests", "--state", "runing"], "running"),
        (["drain", "r0", "--resaon", "x"], "--reason?; infer-console drain --help says more"),
    ],
)
def test_what_was_meant_is_said(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == codes.USAGE
    assert f"did you mean {meant}" in capsys.readouterr().err


def test_what_is_like_nothing_gets_the_whole_list(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["xyzzy"])
    said = capsys.readouterr().err
    assert "did you mean" not in said
    assert "'status'" in said
