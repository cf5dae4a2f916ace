"""plan: how much memory, how many sequences, how fast and at what price; before there is an engine."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from infer_console.cli import codes
from infer_console.cli.verb import Verb, json_option

if TYPE_CHECKING:
    from infer_engine.planner import ConfigShape

    from infer_console.planning.answer import Answer
    from infer_console.planning.facts import Fact


def _plan(arguments: Namespace) -> int:
    from infer_engine.planner import PlanError

    from infer_console.actions.params import ParamError
    from infer_console.cli.output import complain, print_json
    from infer_console.cli.sentence import Asked, document, print_sentence
    from infer_console.planning.answer import answer
    from infer_console.planning.document import plan_document
    from infer_console.planning.fields import FROM_FILE, MODEL
    from infer_console.planning.question import ask

    given = {name: value for name, value in vars(arguments).items() if isinstance(value, str)}
    asked = Asked(arguments) if arguments.sentence is not None else None
    if asked is not None and asked.trouble:
        complain(asked.trouble)
        return codes.USAGE
    try:
        name, config = _model(arguments.model)
        given[MODEL] = name if config is None else FROM_FILE
        made = answer(ask(given, config))
    except (ParamError, PlanError) as error:
        complain(str(error))
        return codes.USAGE
    spoken = asked.answer(made.question.deployment) if asked is not None else None
    if arguments.json:
        print_json(plan_document(made) | ({"sentence": document(*spoken)} if spoken is not None else {}))
    else:
        _print(made, gpus_given=arguments.gpus is not None)
        if spoken is not None:
            print_sentence(*spoken)
    if made.fits:
        return codes.OK
    complain(f"{made.question.deployment} does not fit")
    return codes.ERROR


def _model(given: str) -> tuple[str, "ConfigShape | None"]:
    """A preset's name, or a file's model: what has a slash or ends in .json, and what is no preset but there
    as a file, is a path."""
    from pathlib import Path

    from infer_engine.planner import PlanError, model_named

    from infer_console.planning.config_file import read_config

    if "/" in given or given.endswith(".json"):
        return given, read_config(given)
    try:
        return model_named(given).name, None
    except PlanError as unknown:
        if not Path(given).exists():
            raise PlanError(f"{unknown}; nor is there such a file") from None
        return given, read_config(given)


def _print(made: "Answer", gpus_given: bool) -> None:
    from infer_console.cli.output import note, print_line, print_table
    from infer_console.planning.example import CONTEXT, EXAMPLE, worked_example
    from infer_console.planning.facts import (
        bound_facts,
        duration,
        exact,
        fill_words,
        gb,
        memory_facts,
        money,
        prefill_facts,
        rate,
    )

    question = made.question
    unasked = "" if gpus_given else " (GPUs by default: --gpus)"
    print_line(f"{question.deployment}{unasked}, {question.context:,} tokens of context")
    print_line("")
    _print_facts([*memory_facts(made), *prefill_facts(made), *bound_facts(made)])
    print_line("")
    if made.decode:
        heads = ("kv in use", "sequences>", "kv read>", "step>", "tok/s each>", "tok/s all>", "price/1M tok>")
        print_table(
            heads,
            [
                (
                    fill_words(each),
                    f"{each.sequences:,}",
                    gb(each.kv_read_bytes),
                    duration(each.step_s),
                    rate(each.tokens_per_s_per_sequence),
                    f"{each.tokens_per_s:,.0f}",
                    money(each.price_per_million_tokens),
                )
                for each in made.decode
            ],
        )
        print_line("floors: no real system reaches them; weights alone is the ceiling people quote")
    else:
        print_line("not one sequence of this context fits")
    print_line("")
    print_line(f"the worked example, {EXAMPLE} at {CONTEXT:,} tokens:")
    print_table(
        ("", "rounded>", "exact>"), [(each.what, each.rounded, exact(each)) for each in worked_example()]
    )
    for words in question.notes:
        note(f"note: {words}")


def _print_facts(facts: "list[Fact]") -> None:
    from infer_console.cli.output import print_line

    labels, values = (
        max(map(len, column)) for column in zip(*((f.label, f.value) for f in facts), strict=True)
    )
    for each in facts:
        print_line(f"{each.label:<{labels}}  {each.value:>{values}}  {each.note}".rstrip())


def _arguments(parser: ArgumentParser) -> None:
    from infer_console.planning.fields import CONFIG, MODEL, PARAMS

    parser.add_argument(
        "--model", required=True, metavar="M", help="a known model, or the path of a Hugging Face config.json"
    )
    for param in PARAMS:
        if param.name in (MODEL, CONFIG):
            continue
        default = f"; default {param.default}" if param.default else ""
        parser.add_argument(
            f"--{param.name.replace('_', '-')}",
            metavar="|".join(param.choices)
            if 0 < len(param.choices) < 6
            else "N"
            if param.kind == "number"
            else "GPU",
            help=(param.hint + default).replace("%", "%%"),
        )
    parser.add_argument(
        "--sentence", metavar="TEXT", help="what becomes of it: words, tokens, ids, bytes of KV"
    )
    parser.add_argument("--steps", metavar="N", default="1", help="decode steps after it; default 1")
    parser.add_argument(
        "--connect",
        dest="connect_after",
        action="append",
        default=[],
        metavar="URL",
        help="whose tokenizer cuts the sentence",
    )
    json_option(parser)


VERBS = (
    Verb(
        name="plan",
        help="the arithmetic: memory, sequences that fit, step times and price of a model on GPUs",
        arguments=_arguments,
        run=_plan,
        connects=False,
    ),
)
