"""What a server refuses, in the words of a dialog."""

from infer_engine.protocol import Problem

#: A refusal because of the version that a command was for, and one because it named none.
STALE, UNVERSIONED = "stale_version", "version_required"
#: Their sentences have all their numbers, and the row above has those of now.
IN_WORDS = frozenset(
    {"would_break_min_ready", "no_ready_replica", "no_other_replica", "max_unavailable", "injection_running"}
)
#: What the command line calls an option is a field here.
_FIELDS = (
    ("--force overrides this", "tick force to do it all the same"),
    ("force overrides this", "tick force to do it all the same"),
    ("or --force", "or tick force"),
    ("needs force", "needs force ticked"),
)


def problem_lines(problem: Problem, *, forcible: bool = False) -> list[str]:
    """A problem in words: what, which field, which numbers. ``forcible``: there is a field ``force``."""
    if problem.code == UNVERSIONED:
        return ["it is applied only after the server's prediction: wait for it"]
    lines = [problem.title or problem.code]
    if problem.code == STALE:  # its detail and field are about a header that nobody here typed
        return lines
    if problem.detail and problem.detail != problem.title:
        lines.append(_in_fields(problem.detail) if forcible else problem.detail)
    if problem.field:
        lines.append(f"field: {problem.field.replace('_', ' ')}")
    if problem.numbers and problem.code not in IN_WORDS:
        known = (
            f"{name.replace('_', ' ')} {'–' if value is None else f'{value:,g}'}"
            for name, value in problem.numbers.items()
        )
        lines.append(", ".join(known))
    return lines


def _in_fields(words: str) -> str:
    for option, field in _FIELDS:
        if option in words:
            return words.replace(option, field)
    return words
