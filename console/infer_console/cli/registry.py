"""All verbs, in the order in which the help lists them."""

from infer_console.cli import (
    act,
    audit,
    bench,
    context,
    doctor,
    headroom,
    key,
    limits,
    look,
    past,
    proxy,
    recordings,
    replica_verbs,
    serve,
    tenant,
    token,
    traffic,
    wait,
)
from infer_console.cli.verb import Verb

VERBS: tuple[Verb, ...] = (
    *serve.VERBS,
    *look.VERBS,
    *doctor.VERBS,
    *past.VERBS,
    *recordings.VERBS,
    *wait.VERBS,
    *act.VERBS,
    *replica_verbs.VERBS,
    *headroom.VERBS,
    *limits.VERBS,
    *tenant.VERBS,
    *traffic.VERBS,
    *key.VERBS,
    *context.VERBS,
    *token.VERBS,
    *proxy.VERBS,
    *audit.VERBS,
    *bench.VERBS,
)
