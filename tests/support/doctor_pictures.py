"""What the doctor and the audit show of the incident at 03:11: *acme* floods long prompts, r3's GPU fails."""

from infer_console.state.audit import AuditPicture, read_audit
from infer_console.state.finding import Finding, Proposal
from infer_console.state.picture import Picture
from infer_engine.audit_chain import GENESIS, seal
from infer_engine.protocol import AuditPage
from support.pictures import NOW, incident

FINDINGS: tuple[Finding, ...] = (
    Finding(
        rule="gpu_fault",
        replica="r3",
        since_s=97.0,
        evidence={
            "trouble": "2 uncorrectable ECC errors; Xid 94",
            "temperature_c": 74,
            "slowdown_c": 90,
            "uncorrectable_errors": 2,
            "xids": "94",
            "running": 6,
        },
        confidence=1.0,
        words="its GPU: 2 uncorrectable ECC errors; Xid 94",
    ),
    Finding(
        rule="tenant_crowding",
        replicas=["r2", "r5"],
        since_s=376.0,
        evidence={
            "tenant": "acme",
            "kv_blocks": 40_310,
            "kv_share": 0.82,
            "running": 8,
            "waiting": 27,
            "others_waiting": 17,
            "prompt_tokens_p50": 99_840.0,
            "requests_per_min": 38,
        },
        confidence=0.82,
        words="acme holds 82% of the blocks in use with 8 requests (prompts of 100k); 17 of others wait",
        action=Proposal(
            name="tenant",
            target="acme",
            params={"kv_share": "34"},
            words="acme to 34% of each pool",
            effect="as its requests end, 20,155 blocks go to others, 0 running cut",
        ),
        explains=["kv_pressure", "queueing_on_kv"],
    ),
    Finding(
        rule="headroom_changed",
        replica="r5",
        since_s=251.0,
        evidence={
            "admit_limit_before_blocks": 27_465,
            "admit_limit_blocks": 29_906,
            "changed_ago_s": 251.0,
            "waiting": 19,
            "preempted": 4,
        },
        confidence=0.9,
        words="headroom was changed 4m11s ago: admitted up to 29,906 blocks, 27,465 before; since then 4 were"
        " preempted",
        action=Proposal(
            name="headroom",
            target="r5",
            params={"headroom": "3052b", "tier": "interactive"},
            words="r5: headroom back to 3,052 blocks",
            effect="admitted up to 27,465 blocks as before",
        ),
    ),
)


def audit_page(records: int = 8) -> AuditPage:
    """A chain as a server would write it."""
    verbs = ("headroom", "drain", "scale", "shed")
    sealed, previous = [], GENESIS
    for number in range(1, records + 1):
        done = number % 2 == 0
        outcome = {"status": 200, "code": "ok"} if number % 6 else {"status": 409, "code": "busy"}
        record = seal(
            {
                "ts": NOW - 40.0 * (records - number),
                "actor": {"subject": "kim" if number % 3 else "raj", "claims": None},
                "verb": verbs[(number - 1) // 2 % len(verbs)],
                "target": {"kind": "replica", "id": "r5"},
                "stage": "completed" if done else "received",
                "reason": "ECC errors on GPU 2",
                "dry_run": False,
                **({"outcome": outcome} if done else {}),
            },
            number,
            previous,
        )
        previous = record["sha256"]
        sealed.append(record)
    return AuditPage(records=sealed)


def doctored(**changes: object) -> Picture:
    """The incident with what the doctor found and the audit of it."""
    return incident(**{"findings": FINDINGS, "audit": read_audit(audit_page()), **changes})


def denied() -> Picture:
    """For a viewer, to whom nothing is wrong."""
    trouble = AuditPicture(trouble="not for this role: The role viewer may not read it.")
    return incident(audit=trouble)
