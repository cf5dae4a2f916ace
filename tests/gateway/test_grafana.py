"""Every metric that the dashboard asks for exists on a real page."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.gateway_on_fleet import Served

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "infer-console.json"
NAME = re.compile(r"\b((?:infer|vllm|gen_ai)[_:][a-z_]+)")

pytestmark = pytest.mark.asyncio(loop_scope="session")


def asked_for() -> set[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [variable["query"] for variable in dashboard["templating"]["list"]]
    return {name for expression in expressions for name in NAME.findall(expression)}


async def test_all_metrics_of_the_dashboard_exist(served: Served) -> None:
    page = (await served.gateway.client.get("/metrics")).text
    families = list(text_string_to_metric_families(page))
    names = {sample.name for family in families for sample in family.samples}
    # A family that nothing has happened for yet has a type and no sample.
    empty = {family.name for family in families if not family.samples}
    known = names | {f"{name}{end}" for name in empty for end in ("", "_total", "_bucket")}
    wanted = asked_for()
    assert len(wanted) > 15
    assert wanted - known == set()
