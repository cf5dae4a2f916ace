"""What a server's flight recorder has of the last minutes, given to the diagnosis: who has just come knows
since when, and how fast."""

import dataclasses
import io
import time
from collections.abc import Callable
from contextlib import aclosing

from infer_console.diagnosis.judge import Judge
from infer_console.recording import RecordingReader
from infer_console.sources.client import EngineClient
from infer_console.state.fold import ConsoleState
from infer_console.state.picture import Picture

#: The doctor remembers two minutes.
PAST_S = 150.0
#: Compressed. Of a fleet that has more than that nothing is used: its end would be missing.
MOST_BYTES = 8 * 1024 * 1024
#: Looks at the past are that far apart at least. Messages of one moment come together: a look is between two
#: moments, or where there is no pause for so long.
LOOK_S, PAUSE_S, LONGEST_S = 0.95, 0.05, 2.0
#: After so many messages other threads have the processor for so long.
TURN, TURN_S = 32, 0.002


async def told_before(client: EngineClient, from_at: float) -> bytes | None:
    """What it recorded since then; None where that is too much. Raises what ``client`` raises."""
    content = bytearray()
    async with aclosing(client.recording(from_at, None)) as chunks:
        async for chunk in chunks:
            content += chunk
            if len(content) > MOST_BYTES:
                return None
    return bytes(content)


def fold_before(
    reader: RecordingReader,
    state: ConsoleState,
    look: Callable[[Picture], object],
    turn: Callable[[], bool] = lambda: True,
) -> None:
    """The recording's own time passes, and about once in a second of it ``look`` is shown what was known
    then. ``turn`` is called now and then, and ends it with False. Raises RecordingError."""
    whole = False
    last_at = looked_at = 0.0
    for number, envelope in enumerate(reader.envelopes()):
        due = last_at - looked_at >= LOOK_S and envelope.at - last_at >= PAUSE_S
        if (due or last_at - looked_at >= LONGEST_S) and state.is_whole:
            looked_at = last_at
            look(state.picture(last_at, last_at))
        if envelope.prev == 0:
            state.opened()
            whole = True
        if whole:
            whole = state.fold(envelope, envelope.at)
            state.sample(envelope.at)
            last_at = envelope.at
        if number % TURN == 0 and not turn():
            return
    if state.is_whole and last_at > looked_at:
        look(state.picture(last_at, last_at))


def judged_before(
    content: bytes, url: str, *, shift_s: float, offset_s: float, go_on: Callable[[], bool]
) -> Judge:
    """The diagnosis after all that. ``shift_s``: what this console's clock shows more than the server's;
    ``offset_s``: what it shows more than the clock that the diagnosis is given. Raises RecordingError."""
    judge = Judge()

    def look(picture: Picture) -> None:
        at = picture.at + shift_s
        judge.judged(dataclasses.replace(picture, at=at), at - offset_s)

    def turn() -> bool:
        time.sleep(TURN_S)
        return go_on()

    fold_before(RecordingReader(io.BytesIO(content)), ConsoleState(url), look, turn)
    return judge
