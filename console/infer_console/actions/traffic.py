"""Inject test traffic, and stop it."""

from typing import cast

from infer_engine.durations import show_duration
from infer_engine.protocol import Command, Inject, StopInjection, Tier

from infer_console.actions.action import REASON, Action, number, text
from infer_console.actions.params import Param, Values
from infer_console.state.picture import Picture

#: What each profile asks; a recorded trace comes from a file, which no dialog has.
PROFILES = {
    "chat": "short questions, answers of 16 to 128 tokens",
    "long-context": "long documents, answers of 16 to 64",
    "long-answer": "short questions, answers of 256 to 1,024",
    "shared-prefix": "one of 4 documents before each question",
    "burst": "chat, every 5 s of it at once",
    "batch-backfill": "batch tier: documents, answers of 128 to 512",
    "mixed": "60% chat, 15% long, 15% shared, 10% batch",
}
MAX_RATE_PER_S = 500.0
MAX_DURATION_S = 600.0
MAX_CONCURRENCY = 4_096
MAX_SEED = 2**31 - 1
#: The tier that the profile says.
OWN_TIER = "profile"


def _build_inject(_target: str | None, values: Values) -> Command:
    concurrency = number(values, "concurrency")
    tier = text(values, "tier")
    return Inject(
        profile=text(values, "profile"),
        # A closed loop has no rate: it asks again when it was answered.
        rate_per_s=None if concurrency else number(values, "rate") or 1.0,
        duration_s=number(values, "duration") or 60.0,
        tier=None if tier == OWN_TIER else cast(Tier, tier),
        seed=int(number(values, "seed") or 0),
        concurrency=int(concurrency) if concurrency else None,
        reason=text(values, "reason"),
    )


def _build_stop(_target: str | None, values: Values) -> Command:
    return StopInjection(reason=text(values, "reason"))


def _refuse_inject(picture: Picture, _target: str | None) -> str | None:
    if picture.fleet is not None and picture.fleet.traffic.running:
        return f"{picture.fleet.traffic.profile} traffic is running already; stop it first"
    return None


def _refuse_stop(picture: Picture, _target: str | None) -> str | None:
    if picture.fleet is not None and not picture.fleet.traffic.running:
        return "no test traffic is running"
    return None


def _inject_effect(picture: Picture, _target: str | None, values: Values) -> list[str]:
    rate, duration_s = number(values, "rate"), number(values, "duration")
    concurrency, profile = number(values, "concurrency"), text(values, "profile")
    if rate is None or duration_s is None:
        return []
    if concurrency:
        first = f"{concurrency:,.0f} {profile} requests in flight for {show_duration(duration_s)}"
    else:
        first = (
            f"about {rate * duration_s:,.0f} {profile} requests in {show_duration(duration_s)},"
            f" {rate:g} a second"
        )
    lines = [
        first if text(values, "tier") == OWN_TIER else f"{first}, tier {text(values, 'tier')}",
        "marked synthetic, of lowest priority, and kept out of the latency figures of users",
    ]
    ready = [name for name, shown in picture.replicas.items() if shown.status.state == "ready"]
    lines.append(f"served by {', '.join(ready)}" if ready else "no replica is ready: the requests will wait")
    waiting = picture.totals.waiting if picture.totals else None
    if waiting:
        lines.append(f"{waiting:,} requests wait already")
    return lines


def _stop_effect(picture: Picture, _target: str | None, _values: Values) -> list[str]:
    traffic = picture.fleet.traffic if picture.fleet else None
    in_flight = (
        f"{traffic.in_flight:,} in flight are cancelled" if traffic else "those in flight are cancelled"
    )
    return ["no more test requests are sent", in_flight]


INJECT = Action(
    key="I",
    name="inject",
    title="Inject test traffic",
    danger="safe",
    target="fleet",
    capability="inject",
    params=(
        Param(
            name="profile",
            kind="choice",
            label="profile",
            default="chat",
            choices=tuple(PROFILES),
            choice_hints=PROFILES,
        ),
        Param(
            name="rate",
            kind="number",
            label="requests a second",
            default="1",
            lowest=0.01,
            highest=MAX_RATE_PER_S,
        ),
        Param(
            name="duration",
            kind="duration",
            label="for",
            default="1m",
            lowest=1.0,
            highest=MAX_DURATION_S,
            hint="like 30s or 5m",
        ),
        Param(
            name="concurrency",
            kind="number",
            label="or in flight",
            lowest=1.0,
            highest=MAX_CONCURRENCY,
            whole=True,
            optional=True,
            hint="instead of a rate: a closed loop of so many",
        ),
        Param(
            name="tier",
            kind="choice",
            label="tier",
            default=OWN_TIER,
            choices=(OWN_TIER, "interactive", "batch"),
        ),
        Param(
            name="seed",
            kind="number",
            label="seed",
            default="0",
            highest=MAX_SEED,
            whole=True,
            hint="the same seed, the same requests",
        ),
        REASON,
    ),
    build=_build_inject,
    effect=_inject_effect,
    refusal=_refuse_inject,
    asks=True,
)

STOP_INJECT = Action(
    key="I",
    name="inject-stop",
    title="Stop test traffic",
    danger="safe",
    target="fleet",
    capability="inject",
    params=(REASON,),
    build=_build_stop,
    effect=_stop_effect,
    refusal=_refuse_stop,
)
