"""doctor against a real server."""

from support.cli import Run


def test_a_server_without_trouble(run: Run) -> None:
    result = run("doctor", "--json")
    assert result.code == 0
    assert (result.document["version"], result.document["simulated"]) == (1, False)
    # That a busy machine holds up the gateway is true, and the server's fault no more than the test's.
    assert [each for each in result.document["findings"] if each["rule"] != "gateway_lag"] == []


def test_help_names_it(run: Run) -> None:
    assert "why it is slow" in run("--help").out
