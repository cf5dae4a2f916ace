"""Whether a constraint can be used, before its request goes to a replica."""

import asyncio

from infer_engine.gateway.errors import invalid
from infer_engine.gateway.settings import GatewaySettings
from infer_engine.gateway.turns import Turns
from infer_engine.model.constraint_limits import ConstraintError
from infer_engine.model.grammar import Grammars
from infer_engine.model.sampling import Constraint
from infer_engine.model.vocabulary import Vocabulary


class ConstraintCheck:
    """Compiles in a thread, one at a time, and bounded in time: the event loop goes on. What compiles here
    does so on every replica, whose limits are the same."""

    def __init__(self, vocabulary: Vocabulary, settings: GatewaySettings) -> None:
        self._vocabulary = vocabulary
        self._settings = settings
        self._grammars: Grammars | None = None
        self._turns = Turns(1, settings.max_constraints_waiting, "too many constraints are being compiled")

    async def check(self, constraint: Constraint, field: str) -> None:
        """Raise ApiError: 400 naming ``field`` when it cannot be used, 503 when too many are being looked
        at."""
        if self._grammars is None:  # takes as long as it takes, and is no constraint's fault
            await asyncio.shield(await self._turns.start(self._prepare))
        task = await self._turns.start(lambda: self._compile(constraint))
        limit_s = self._settings.constraint_deadline_s
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.shield(task)
        except ConstraintError as error:
            raise invalid(field, f"{field} cannot be used: {error}", code="invalid_constraint") from None
        except TimeoutError:
            raise invalid(
                field,
                f"{field} cannot be used: it does not compile within {limit_s:g} s",
                code="invalid_constraint",
            ) from None

    def _prepare(self) -> Grammars:
        if self._grammars is None:
            self._grammars = Grammars(self._vocabulary)
        return self._grammars

    def _compile(self, constraint: Constraint) -> None:
        self._prepare().start(constraint)
