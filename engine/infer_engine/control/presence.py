"""Who is attached: operators see that they are not alone before they act."""

from infer_engine.control.principal import Principal
from infer_engine.protocol import Attached

#: So many are named, the others counted.
MOST_NAMED = 16
MAX_CLAIM = 64


class Presence:
    """Watchers by their connection, in the order they came. The limit on watch streams bounds them."""

    def __init__(self) -> None:
        self._here: dict[int, Attached] = {}
        self._came = 0

    def enter(self, principal: Principal | None, claimed: str, at: float) -> int:
        """Somebody came; the number is for ``leave``. ``at`` is Unix seconds."""
        self._came += 1
        name = "".join(character for character in claimed[:MAX_CLAIM] if character.isprintable())
        subject = principal.subject if principal is not None else "unknown"
        who = f"{subject} ({name})" if name else subject
        role = principal.role if principal is not None else "viewer"
        self._here[self._came] = Attached(who=who, role=role, since_at=at)
        return self._came

    def leave(self, number: int) -> None:
        self._here.pop(number, None)

    def named(self) -> list[Attached]:
        return list(self._here.values())[:MOST_NAMED]

    def more(self) -> int:
        return max(0, len(self._here) - MOST_NAMED)
