"""doctor: why it is slow: what the rules find, with their evidence and what they propose."""

import asyncio
import io
import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from infer_engine.protocol import Alarm, Envelope, History

from infer_console.cli import codes
from infer_console.cli.call import call
from infer_console.cli.verb import Verb, json_option

if TYPE_CHECKING:
    from infer_console.diagnosis.doctor import Doctor
    from infer_console.sources.client import EngineClient
    from infer_console.state.finding import Finding
    from infer_console.state.fold import ConsoleState

#: How long it looks itself, after what the flight recorder has of the time before.
WATCH_S = 4.5
#: A server that tells nothing for so long is asked no more.
SILENT_S = 10.0
#: Of the history: half an hour in steps of so long.
HISTORY_S, STEP_S = 1_800.0, 20.0


def _doctor(arguments: Namespace) -> int:
    from infer_console.cli.output import note, print_json

    async def work(client: "EngineClient") -> int:
        findings, alarms, simulated, trouble, nothing = await _examine(client)
        if trouble:
            note(f"nothing is known of the time before: {trouble}")
        if arguments.json:
            found = [_document(each) for each in findings]
            print_json({"version": 1, "simulated": simulated, "findings": found, "alarms": alarms})
        else:
            print_findings(findings, alarms, simulated, nothing)
        return codes.OK

    return call(arguments, work)


async def _examine(
    client: "EngineClient",
) -> tuple[tuple["Finding", ...], tuple["Alarm", ...], bool, str, str]:
    """What is found after the past and a few seconds of the present, and what is wrong at its end; whether
    all of it is simulated; why the past is not known, where it is not; what to say where nothing is found."""
    from infer_console.diagnosis.alarms import find_alarms
    from infer_console.diagnosis.doctor import Doctor
    from infer_console.diagnosis.sight import nothing_found
    from infer_console.state.fold import ConsoleState

    hello = await client.hello()
    state, doctor = ConsoleState(client.target.url), Doctor()
    state.hello(hello)
    trouble = await _past(client, hello.capabilities, state, doctor)
    state.opened()
    offset_s = await client.now() - time.time()

    def now() -> float:
        return time.time() + offset_s

    findings = doctor.look(state.picture(now(), now()))
    end_s = time.monotonic() + WATCH_S
    try:
        async with asyncio.timeout(WATCH_S + SILENT_S), client.watch((), (), 2.0) as stream:
            async for text in stream.messages():
                state.fold(_decode(text), now())
                state.sample(now())
                findings = doctor.look(state.picture(now(), now()))
                if time.monotonic() >= end_s:
                    break
    except TimeoutError:
        pass  # a quiet fleet has little to tell
    picture = state.picture(now(), now())
    return findings, find_alarms(picture), hello.fleet.simulated, trouble, nothing_found(picture)


async def _past(
    client: "EngineClient", capabilities: list[str], state: "ConsoleState", doctor: "Doctor"
) -> str:
    """Fold in what was before; why that could not be, else nothing."""
    from infer_console.past.told_before import PAST_S, fold_before, told_before
    from infer_console.recording import RecordingError, RecordingReader
    from infer_console.sources.failures import NotUnderstoodError, RefusedError

    try:
        if "history" in capabilities:
            state.look_back(_without_the_end(await client.history(HISTORY_S, STEP_S)))
        if "recorder" not in capabilities:
            return "this server has no flight recorder"
        content = await told_before(client, await client.now() - PAST_S)
        if content is None:
            return "the flight recorder has too much of it"
        fold_before(RecordingReader(io.BytesIO(content)), state, doctor.look)
    except RefusedError as refused:
        return refused.problem.title
    except (RecordingError, NotUnderstoodError) as error:
        return str(error)
    return ""


def _without_the_end(history: History) -> History:
    """The recorder tells the end of it."""
    import msgspec

    from infer_console.past.told_before import PAST_S

    cut = round(PAST_S / max(history.step_s, 1.0))
    return msgspec.structs.replace(
        history,
        fleet={key: values[:-cut] for key, values in history.fleet.items()},
        replicas={},
    )


def _decode(text: str) -> Envelope:
    import msgspec

    return msgspec.json.decode(text, type=Envelope)


def _document(finding: "Finding") -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(finding)
    if finding.action is not None:
        document["action"]["command"] = finding.action.command
    return document


def print_findings(
    findings: tuple["Finding", ...],
    alarms: tuple["Alarm", ...],
    simulated: bool,
    nothing: str = "nothing found",
) -> None:
    """Where no cause is found, what is wrong all the same."""
    from infer_console.cli.output import print_line
    from infer_console.cli.tables import alarm_words, print_simulated
    from infer_console.view.evidence import evidence_words
    from infer_console.view.format import age

    print_simulated(simulated)
    if not findings and not alarms:
        print_line(nothing)
    elif not findings:
        print_line("no rule sees a cause beyond what the alarms say:")
        for alarm in alarms:
            print_line(f"  {alarm_words(alarm)}")
    for finding in findings:
        where = finding.replica or (", ".join(finding.replicas) or "fleet")
        since = f", for {age(finding.since_s)}" if finding.since_s is not None else ""
        print_line(f"{finding.rule} ({where}{since}, confidence {finding.confidence:.0%})")
        print_line(f"  {finding.words}")
        print_line(f"  evidence: {', '.join(evidence_words(finding))}")
        if finding.action is not None:
            print_line(f"  proposed: {finding.action.words} → {finding.action.effect} (est.)")
            print_line(f"            {finding.action.command}")


VERBS = (
    Verb(
        name="doctor",
        help="why it is slow: causes with their evidence, and what to do about them",
        arguments=json_option,
        run=_doctor,
    ),
)
