"""Who changed a thing while a dialog about it was open."""

from infer_engine.protocol import Problem

from infer_console.state.picture import Picture

SOMEBODY = "somebody"


def changed_by(problem: Problem, picture: Picture, target: str | None, since_at: float) -> str:
    """Of a refusal because of another version: as the server says it, else who began an operation on it since
    (Unix seconds), else an audit record's; ``somebody`` where none of them tells. Untrusted text."""
    told = (problem.current or {}).get("actor")
    if isinstance(told, str) and told:
        return told
    name = target or "fleet"
    for operation in sorted(picture.operations, key=lambda each: -each.started_at):
        if operation.started_at < since_at:
            break
        if operation.target == name and operation.actor:
            return operation.actor
    for entry in picture.audit.entries if picture.audit is not None else ():
        lately = entry.at is not None and entry.at >= since_at
        if lately and entry.target == name and entry.stage == "done" and not entry.dry_run and entry.who:
            return entry.who
    return SOMEBODY
