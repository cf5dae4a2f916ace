"""The end of the server's audit, asked for again and again while somebody looks at it."""

import asyncio
from collections.abc import Callable

from infer_console.sources.client import EngineClient
from infer_console.sources.failures import NotUnderstoodError, RefusedError, UnreachableError
from infer_console.state.audit import AuditPicture, read_audit

PERIOD_S = 3.0
#: Records shown.
RECORDS = 200


class AuditTail:
    """``told`` gets every answer, or why there is none. Nothing is asked for before ``watch(True)``."""

    def __init__(self, client: EngineClient, told: Callable[[AuditPicture], None]) -> None:
        self._client = client
        self._told = told
        self._wanted = asyncio.Event()

    def watch(self, wanted: bool) -> None:
        if wanted:
            self._wanted.set()
        else:
            self._wanted.clear()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wanted.wait()
            self._told(await self._ask())
            await asyncio.sleep(PERIOD_S)

    async def _ask(self) -> AuditPicture:
        try:
            return read_audit(await self._client.audit(limit=RECORDS))
        except RefusedError as refused:
            if refused.problem.status in (401, 403):
                return AuditPicture(trouble=f"not for this role: {refused.problem.title}")
            return AuditPicture(trouble=refused.problem.title)
        except (UnreachableError, NotUnderstoodError) as failure:
            return AuditPicture(trouble=str(failure))
