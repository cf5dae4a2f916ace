"""Each rule speaks within ten simulated seconds of its incident, and no rule speaks of another's."""

from pathlib import Path

import pytest
from infer_console.diagnosis.rules.registry import RULES
from support.incident_scripts import INCIDENTS, Incident

WITHIN_S = 10.0


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.id)
def test_its_rule_speaks_soon_and_no_other(incident: Incident, tmp_path: Path) -> None:
    ward = incident.play(tmp_path)
    assert ward.began_s is not None
    before = {each.rule for at_s, found in ward.found if at_s < ward.began_s for each in found}
    assert before == set(), "nothing was wrong yet"
    assert incident.rule in ward.rules(WITHIN_S), ward.story()
    assert ward.rules() == {incident.rule}, ward.story()


#: Of servers that others run, which are not simulated: see test_unreachable.py.
ELSEWHERE = {"replica_unreachable"}


def test_every_rule_has_an_incident() -> None:
    assert {rule.name for rule in RULES} == {incident.rule for incident in INCIDENTS} | ELSEWHERE
