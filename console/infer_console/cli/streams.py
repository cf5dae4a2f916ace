"""streams: tokens as they are generated, of a few requests, for a few seconds; their text only for who may
read it and asks for it."""

import asyncio
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from infer_engine.protocol import TokenDelta

from infer_console.cli import codes
from infer_console.cli.call import call
from infer_console.cli.verb import Verb, json_option
from infer_console.cli.words import duration

if TYPE_CHECKING:
    from infer_console.sources.client import EngineClient
    from infer_console.state.picture import StreamPicture

DEFAULT_S, MOST_S = 2.0, 600.0
#: Roles that may read what users get.
READERS = ("content", "operator", "admin")


def _streams(arguments: Namespace) -> int:
    from infer_console.cli.output import complain, note, print_json
    from infer_console.state.fold import ConsoleState
    from infer_console.state.streams import MAX_STREAMS

    if len(arguments.ids) > MAX_STREAMS:
        complain(f"streams: {len(arguments.ids)} requests were given, allowed are {MAX_STREAMS}")
        return codes.USAGE

    async def work(client: "EngineClient") -> int:
        hello = await client.hello()
        content = arguments.content and (hello.role is None or hello.role in READERS)
        if arguments.content and not content:
            note(f"the text is not for this role ({hello.role}): only when tokens come is told")
        wanted = arguments.ids or await _running(client, MAX_STREAMS)
        state = ConsoleState(client.target.url)
        if wanted:
            await _tap(client, state, wanted, content=content, seconds=arguments.duration)
        told = [_document(each, content=content) for each in state.picture(0.0, 0.0).streams.values()]
        if arguments.json:
            simulated = hello.fleet.simulated
            print_json({"version": 1, "simulated": simulated, "content": content, "streams": told})
        else:
            _print(told, content=content)
        return codes.OK

    return call(arguments, work)


async def _running(client: "EngineClient", most: int) -> list[str]:
    return [row.id for row in (await client.requests("running")).requests[:most]]


async def _tap(
    client: "EngineClient", state: Any, wanted: list[str], *, content: bool, seconds: float
) -> None:
    """Until that time is over or all have ended. Raises what ``client`` raises, 404 for one it does not
    know."""
    import msgspec

    decoder = msgspec.json.Decoder(TokenDelta)
    state.watch_streams(wanted)
    state.tap_opened()
    try:
        async with asyncio.timeout(seconds), client.tokens(wanted, content=content) as stream:
            async for text in stream.messages():
                state.tokens(decoder.decode(text), time.time())
    except TimeoutError:
        pass  # that long it was to take


def _document(stream: "StreamPicture", *, content: bool) -> dict[str, Any]:
    return {
        "request": stream.request,
        "tokens": stream.tokens,
        "last_itl_s": stream.last_itl_s,
        "finish_reason": stream.finish_reason,
        "gaps_s": list(stream.gaps_s),
        "ats": list(stream.ats),
        #: null: it was not told.
        "text": stream.text if content else None,
        "dropped_chars": stream.dropped_chars if content else None,
    }


def _print(streams: list[dict[str, Any]], *, content: bool) -> None:
    from infer_console.cli.output import print_line, print_table
    from infer_console.view.format import UNKNOWN

    if not streams:
        print_line("no request runs")
        return
    rows: list[tuple[object, ...]] = []
    for each in streams:
        gaps = [gap for gap in each["gaps_s"] if gap is not None]
        itl = f"{each['last_itl_s'] * 1000:.0f}" if each["last_itl_s"] is not None else UNKNOWN
        worst = f"{max(gaps) * 1000:.0f}" if gaps else UNKNOWN
        end = each["text"][-60:] if content else "hidden"
        rows.append((each["request"], each["tokens"], itl, worst, each["finish_reason"] or "", end))
    print_table(("REQUEST", "TOKENS>", "ITL ms>", "WORST ms>", "ENDED", "TEXT"), rows)


def _arguments(parser: ArgumentParser) -> None:
    json_option(parser)
    parser.add_argument("ids", nargs="*", metavar="ID", help="requests (default: the first 16 that run)")
    parser.add_argument(
        "--duration",
        type=duration(0.1, MOST_S),
        default=DEFAULT_S,
        metavar="TIME",
        help="listen so long (default 2s)",
    )
    parser.add_argument(
        "--content",
        action="store_true",
        help="with their text, for who may read it; the server's audit has who read what",
    )


VERBS = (
    Verb(
        name="streams",
        help="when the tokens of requests come, and with --content their text",
        arguments=_arguments,
        run=_streams,
    ),
)
