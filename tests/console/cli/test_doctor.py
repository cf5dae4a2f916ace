"""doctor against a real server."""

from support.cli import Run


def test_a_server_without_trouble(run: Run) -> None:
    result = run("doctor", "--json")
    assert result.code == 0
    assert result.document == {"version": 1, "simulated": False, "findings": []}


def test_help_names_it(run: Run) -> None:
    assert "why it is slow" in run("--help").out
