"""context: which servers the contexts file names, and which of them is the current one."""

from argparse import ArgumentParser, Namespace

from infer_console.cli import codes
from infer_console.cli.verb import Verb, json_option


def _context(arguments: Namespace) -> int:
    from infer_console.cli.output import complain
    from infer_console.contexts import ContextsError, contexts_path, use_context

    path = contexts_path()
    try:
        if arguments.action == "list":
            return _list(as_json=arguments.json)
        if arguments.name is None:
            complain("context use needs the name of a context")
            return codes.USAGE
        use_context(arguments.name, path)
    except ContextsError as error:
        complain(str(error))
        return codes.USAGE
    except OSError as error:
        complain(f"{path}: {error.strerror or error}")
        return codes.ERROR
    return codes.OK


def _list(*, as_json: bool) -> int:
    from infer_console.cli.output import print_json, print_line
    from infer_console.contexts import contexts_path, read_contexts

    known = read_contexts(contexts_path())
    rows = [
        {
            "name": name,
            "url": context.url,
            "current": name == known.current,
            "read_only": context.read_only,
            "production": context.production,
        }
        for name, context in known.contexts.items()
    ]
    if as_json:
        print_json({"version": 1, "contexts": rows})
        return codes.OK
    for row in rows:
        marks = [word for word in ("production", "read_only") if row[word]]
        mark = "*" if row["current"] else " "
        print_line(f"{mark} {row['name']}  {row['url']}  {' '.join(marks)}".rstrip())
    return codes.OK


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "use"), help="show them, or make one the current one")
    parser.add_argument("name", nargs="?", help="use: the context")
    json_option(parser)


VERBS = (
    Verb(
        name="context",
        help="list the servers of the contexts file, or choose the current one",
        arguments=_arguments,
        run=_context,
        connects=False,
    ),
)
