"""The incident with hostile text in every field that somebody else fills: users, clients, the server, other
consoles."""

import dataclasses

import msgspec
from infer_console.state.audit import AuditEntry, AuditPicture
from infer_console.state.finding import Finding, Proposal
from infer_console.state.picture import (
    Link,
    Listing,
    Picture,
    ReplicaPicture,
    StreamPicture,
    TimelinePicture,
)
from infer_engine.protocol import (
    Alarm,
    Attached,
    LeaseHolder,
    Operation,
    RequestRow,
    Timeline,
    TimelineEntry,
    TtftSplit,
)
from support import pictures
from support.doctor_pictures import FINDINGS
from support.list_pictures import ENDED

STREAM = "7f3a91"


def hostile_incident(text: str) -> Picture:
    """Ids stay as they are (the server makes them); everything else is ``text``."""
    picture = pictures.incident()
    assert picture.fleet is not None
    assert picture.totals is not None
    fleet = msgspec.structs.replace(
        picture.fleet,
        name=text,
        model=text,
        version=text,
        gateway=msgspec.structs.replace(picture.fleet.gateway, url=text),
        traffic=msgspec.structs.replace(
            picture.fleet.traffic, running=True, profile=text, stopped_because=text
        ),
        specs_trouble=text,
        attached=[Attached(who=text, role="operator", since_at=pictures.NOW - 60)],
        lease=LeaseHolder(holder=text, purpose=text, expires_at=pictures.NOW + 60),
    )
    uses = [msgspec.structs.replace(use, tenant=text) for use in picture.totals.tenants if use.tenants == 1]
    totals = msgspec.structs.replace(
        picture.totals, waiting_reasons={text: 3}, finished={text: 4}, tenants=uses
    )
    events = tuple(
        msgspec.structs.replace(event, tenant=text, reason=text, message=text, actor=text)
        for event in picture.events
    )
    operations = tuple(_operation(operation, text) for operation in picture.operations)
    alarms = tuple(_alarm(alarm, text) for alarm in picture.alarms)
    return dataclasses.replace(
        picture,
        link=Link(text, "live", age_s=0.2, message=text),
        fleet=fleet,
        totals=totals,
        events=events,
        operations=operations,
        alarms=alarms,
        replicas={id: _replica(replica, text) for id, replica in picture.replicas.items()},
        streams={STREAM: _stream(STREAM, text)},
        server_version=text,
        held=(_row(pictures.QUEUE[0], text),),
        streams_message="",
        findings=tuple(_finding(finding, text) for finding in FINDINGS),
        audit=AuditPicture((AuditEntry(1, pictures.NOW, text, text, text, text, text, text),), text, text),
        listing=Listing(
            tuple(_row(row, text) for row in (*pictures.QUEUE, *pictures.ROSTER)),
            pictures.NOW,
            {"running": 7},
            tuple(_row(row, text) for row in ENDED),
        ),
        listing_message=text,
        timeline=TimelinePicture(STREAM, _timeline(STREAM, text), text, pictures.NOW),
    )


def _finding(finding: Finding, text: str) -> Finding:
    proposal = Proposal(name="tenant", target=text, params={"kv_share": "3"}, words=text, effect=text)
    return msgspec.structs.replace(finding, words=text, evidence={"tenant": text}, action=proposal)


def hostile_ids(text: str) -> Picture:
    """The ids too, as if the server itself were hostile."""
    picture = hostile_incident(text)
    row = msgspec.structs.replace(pictures.ROSTER[0], id=text, behind=text, tenant=text)
    replica = picture.replicas["r2"]
    status = msgspec.structs.replace(replica.status, id=text)
    events = tuple(
        msgspec.structs.replace(event, request=text, replica=text, to_replica=text, operation=text)
        for event in picture.events
    )
    hostile = ReplicaPicture(status, {text: row}, (text,), replica.blocks, at=replica.at)
    return dataclasses.replace(
        picture,
        events=events,
        replicas={text: hostile},
        streams={text: _stream(text, text)},
        listing=Listing((row,), pictures.NOW, ended=(msgspec.structs.replace(row, state="finished"),)),
        timeline=TimelinePicture(text, _timeline(text, text), text, pictures.NOW),
    )


def _stream(request: str, text: str) -> StreamPicture:
    """Its last token was waited for, so that the text is cut there."""
    return StreamPicture(
        request,
        text,
        12,
        3,
        0.04,
        gaps_s=(0.04, 0.04, 2.0),
        ats=(pictures.NOW - 2.04, pictures.NOW - 2.0, pictures.NOW),
        characters=(max(0, len(text) - 2), 1, min(1, len(text))),
        heard_at=pictures.NOW - 5,
    )


def _timeline(request: str, text: str) -> Timeline:
    return Timeline(
        request=request,
        began_at=pictures.NOW - 9,
        entries=[
            TimelineEntry(kind="arrived", at_s=0.0),
            TimelineEntry(kind="routed", at_s=1.0, replica=text, reason=text),
            TimelineEntry(kind="admitted", at_s=2.0, replica=text),
        ],
        ttft_split_s=TtftSplit(gateway=0.1, tokenize=0.2),
    )


def _row(row: RequestRow, text: str) -> RequestRow:
    return msgspec.structs.replace(row, tenant=text, client_id=text)


def _replica(replica: ReplicaPicture, text: str) -> ReplicaPicture:
    status = msgspec.structs.replace(
        replica.status, error=text if replica.status.id == "r2" else None, device=text, dtype=text
    )
    rows = {id: _row(row, text) for id, row in replica.rows.items()}
    return dataclasses.replace(replica, status=status, rows=rows)


def _operation(operation: Operation, text: str) -> Operation:
    return msgspec.structs.replace(
        operation, actor=text, reason=text, message=text, blocked_by=[text], params={"mode": text, text: text}
    )


def _alarm(alarm: Alarm, text: str) -> Alarm:
    return msgspec.structs.replace(alarm, text=text, action=text, rule=text)
