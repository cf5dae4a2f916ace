"""All verbs, in the order in which the help lists them."""

from infer_console.cli import act, bench, headroom, limits, look, past, serve, tenant, traffic, wait
from infer_console.cli.verb import Verb

VERBS: tuple[Verb, ...] = (
    *serve.VERBS,
    *look.VERBS,
    *past.VERBS,
    *wait.VERBS,
    *act.VERBS,
    *headroom.VERBS,
    *limits.VERBS,
    *tenant.VERBS,
    *traffic.VERBS,
    *bench.VERBS,
)
