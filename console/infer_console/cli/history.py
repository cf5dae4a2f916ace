"""history: the figures of the last half hour, as the sparklines have them."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from infer_engine.protocol import History

from infer_console.cli import codes
from infer_console.cli.call import call
from infer_console.cli.verb import Verb, json_option
from infer_console.cli.words import duration

if TYPE_CHECKING:
    from infer_console.sources.client import EngineClient

DEFAULT_S, MOST_S = 1_800.0, 3_600.0
DEFAULT_STEP_S, MOST_STEP_S = 20.0, 600.0


def _history(arguments: Namespace) -> int:
    from infer_console.cli.output import complain, print_json
    from infer_console.cli.tables import print_simulated

    async def work(client: "EngineClient") -> int:
        found = await client.history(arguments.last, arguments.step)
        wanted = arguments.replica
        if wanted is not None and wanted not in found.replicas:
            complain(f"nothing is kept of a replica {wanted}; of large fleets only the fleet's figures come")
            return codes.ERROR
        if arguments.json:
            print_json(found)
        else:
            print_simulated(found.simulated)
            _print(found, found.fleet if wanted is None else found.replicas[wanted])
        return codes.OK

    return call(arguments, work)


def _print(found: History, series: dict[str, list[float | None]]) -> None:
    from infer_console.cli.output import print_line, print_table
    from infer_console.past.when import stamp

    rows: list[tuple[str, ...]] = []
    for key, values in series.items():
        known = [value for value in values if value is not None]
        mean = sum(known) / len(known) if known else None
        least, most = (min(known), max(known)) if known else (None, None)
        last = values[-1] if values else None
        rows.append((key, *(figure(key, value) for value in (last, least, mean, most))))
    steps = max((len(values) for values in series.values()), default=0)
    # The last step ends after now: it says what is known so far.
    print_line(f"{steps} steps of {found.step_s:g} s up to now; the last one ends {stamp(found.until_at)}")
    print_table(("FIGURE", "LAST>", "LEAST>", "MEAN>", "MOST>"), rows)


def figure(key: str, value: float | None) -> str:
    """With its unit, as other verbs have it; of a key that is not known here, the number."""
    from infer_console.view.format import UNKNOWN, mean_count, milliseconds, percent, rate, seconds

    if value is None:
        return UNKNOWN
    if key == "kv":
        return f"{percent(value)} %"
    if key in ("running", "waiting"):
        return mean_count(value)
    if key == "tokens_per_s":
        return f"{rate(value)} tok/s"
    if key.startswith("itl_"):
        return f"{milliseconds(value)} ms"
    if key.startswith(("ttft_", "queue_wait_")):
        return f"{seconds(value)} s"
    return f"{value:.4g}"


def _arguments(parser: ArgumentParser) -> None:
    json_option(parser)
    parser.add_argument(
        "--last",
        type=duration(1.0, MOST_S),
        default=DEFAULT_S,
        metavar="TIME",
        help="how far back (default 30m, at most 1h)",
    )
    parser.add_argument(
        "--step",
        type=duration(1.0, MOST_STEP_S),
        default=DEFAULT_STEP_S,
        metavar="TIME",
        help="one figure for so long (default 20s)",
    )
    parser.add_argument("--replica", metavar="REPLICA", help="the table of this one (default: the fleet)")


VERBS = (
    Verb(
        name="history",
        help="the last half hour: latencies, load, KV and tokens/s, step by step",
        arguments=_arguments,
        run=_history,
    ),
)
