"""Whether a constraint can be used, before its request goes to a replica."""

import asyncio

from infer_engine.gateway.errors import ApiError, invalid
from infer_engine.gateway.settings import GatewaySettings
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
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0
        self._running: set[asyncio.Task[None]] = set()

    async def check(self, constraint: Constraint, field: str) -> None:
        """Raise ApiError: 400 naming ``field`` when it cannot be used, 503 when too many are being looked
        at."""
        if self._waiting >= self._settings.max_constraints_waiting:
            raise ApiError(
                503, "too many constraints are being compiled", code="overloaded", retry_after_s=1.0
            )
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        task = asyncio.create_task(asyncio.to_thread(self._compile, constraint))
        self._running.add(task)
        task.add_done_callback(self._done)
        limit_s = self._settings.constraint_deadline_s
        try:
            # A thread cannot be stopped: its turn is taken until it ends.
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

    def _compile(self, constraint: Constraint) -> None:
        if self._grammars is None:
            self._grammars = Grammars(self._vocabulary)
        self._grammars.start(constraint)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._turn.release()
        if not task.cancelled():
            task.exception()  # somebody who left does not miss it
