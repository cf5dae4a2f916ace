"""The options of an action, from the registry that the dialogs use too."""

import math
from argparse import SUPPRESS, ArgumentParser, Namespace

from infer_engine.durations import show_duration

from infer_console.actions.action import Action
from infer_console.actions.params import Given, Param
from infer_console.cli.verb import dry_run_option, json_option


def add_options(parser: ArgumentParser, action: Action, leave_out: tuple[str, ...] = ()) -> None:
    """One ``--option`` per parameter; their words are checked by the action, not here."""
    for param in action.params:
        if param.name in leave_out:
            continue
        option = f"--{param.name.replace('_', '-')}"
        hint = "; ".join(each for each in (param.hint, _bounds(param)) if each)
        text = (param.label + (f" ({hint})" if hint else "")).replace("%", "%%")
        if param.kind == "flag":
            parser.add_argument(option, dest=param.name, action="store_true", default=SUPPRESS, help=text)
            continue
        default = f"; default {param.default}" if param.default else ""
        metavar = "|".join(param.choices) if param.choices else param.kind.upper()
        parser.add_argument(option, dest=param.name, default=SUPPRESS, metavar=metavar, help=text + default)
    dry_run_option(parser)
    json_option(parser)


def _bounds(param: Param) -> str:
    """What the server would refuse should not be found out by being refused."""
    if not math.isfinite(param.highest):
        return ""
    if param.kind == "duration":
        return f"{show_duration(param.lowest)} to {show_duration(param.highest)}"
    return f"{param.lowest:g} to {param.highest:.16g}" if param.kind in ("number", "limit") else ""


def given_options(arguments: Namespace, action: Action) -> Given:
    """What was given on the command line, by parameter name."""
    words = vars(arguments)
    return {param.name: words[param.name] for param in action.params if param.name in words}
