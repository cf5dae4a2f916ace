"""A replica that should be there is not."""

from collections.abc import Iterator

from infer_console.diagnosis.case import Case
from infer_console.diagnosis.unready import is_missed, is_upstream, missed_words
from infer_console.state.finding import Finding


def replica_unreachable(case: Case) -> Iterator[Finding]:
    ready = sum(1 for _ in case.ready())
    for name, shown in case.picture.replicas.items():
        replica = shown.status
        if not is_missed(replica):
            continue
        if ready:
            rest = f"requests go to the {ready} that {'is' if ready == 1 else 'are'} ready"
        else:
            rest = "no other is ready: requests are held until one is, or until their deadline"
        todo = "look at that server, it is looked for again" if is_upstream(replica) else "it loads again"
        yield Finding(
            rule="replica_unreachable",
            replica=name,
            since_s=replica.unready_s,
            evidence={
                "unready_s": replica.unready_s,
                "error": replica.error,
                "incarnation": float(replica.incarnation),
                "other_ready": ready,
            },
            confidence=1.0,
            words=f"{missed_words(replica)}; {todo}; {rest}",
        )
