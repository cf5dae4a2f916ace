"""All verbs, in the order in which the help lists them."""

from infer_console.cli import act, audit, bench, headroom, limits, look, serve, tenant, traffic, wait
from infer_console.cli.verb import Verb

VERBS: tuple[Verb, ...] = (
    *serve.VERBS,
    *look.VERBS,
    *wait.VERBS,
    *act.VERBS,
    *headroom.VERBS,
    *limits.VERBS,
    *tenant.VERBS,
    *traffic.VERBS,
    *audit.VERBS,
    *bench.VERBS,
)
