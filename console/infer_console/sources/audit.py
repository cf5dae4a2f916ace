"""The end of the server's audit, asked for again and again while somebody looks at it; and the records of any
time."""

import asyncio
from collections.abc import Callable

from infer_engine.protocol import AuditPage

from infer_console.sources.client import EngineClient
from infer_console.sources.failures import NotUnderstoodError, RefusedError, UnreachableError
from infer_console.state.audit import AuditPicture, read_audit

PERIOD_S = 3.0
#: Records shown.
RECORDS = 200
#: Records that are asked for at once, and how often at most for those of one time.
PAGE, MOST_PAGES = 1_000, 20
AFTER_MOVE_S = 0.2


async def records_of(
    client: EngineClient, from_at: float | None, to_at: float | None, most: int
) -> AuditPage:
    """Those written in that time (Unix seconds), the oldest first, at most ``most``: the newest of them.
    Raises what ``client`` raises."""
    found: list[dict[str, object]] = []
    trouble, before = None, None
    for _ in range(MOST_PAGES):
        limit = min(PAGE, most) if to_at is None else PAGE
        page = await client.audit(limit=limit, **({} if before is None else {"before": before}))
        trouble = page.trouble
        if not page.records:
            break
        found = [each for each in page.records if _within(each, from_at, to_at)] + found
        first = page.records[0]
        number, at = first.get("number"), first.get("ts")
        if len(found) >= most or not isinstance(number, int) or number <= 1:
            break
        if from_at is not None and isinstance(at, int | float) and at < from_at:
            break
        before = number
    return AuditPage(records=found[-most:], trouble=trouble)


def _within(record: dict[str, object], from_at: float | None, to_at: float | None) -> bool:
    at = record.get("ts")
    if not isinstance(at, int | float):
        return to_at is None  # what cannot be read is shown where it stands
    return (from_at is None or at >= from_at) and (to_at is None or at <= to_at)


class AuditTail:
    """``told`` gets every answer, or why there is none. Nothing is asked for before ``watch(True)``."""

    def __init__(self, client: EngineClient, told: Callable[[AuditPicture], None]) -> None:
        self._client = client
        self._told = told
        self._wanted = asyncio.Event()
        self._until_at: float | None = None
        self._moved = asyncio.Event()

    def watch(self, wanted: bool) -> None:
        if wanted:
            self._wanted.set()
        else:
            self._wanted.clear()

    def until(self, at: float | None) -> None:
        """Up to which moment; None: the newest."""
        if at != self._until_at:
            self._until_at = at
            self._moved.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wanted.wait()
            self._moved.clear()
            self._told(await self._ask())
            try:
                async with asyncio.timeout(PERIOD_S):
                    await self._moved.wait()
            except TimeoutError:
                pass  # it is asked again
            else:
                await asyncio.sleep(AFTER_MOVE_S)  # several steps through time come one after the other

    async def _ask(self) -> AuditPicture:
        try:
            return read_audit(await records_of(self._client, None, self._until_at, RECORDS))
        except RefusedError as refused:
            if refused.problem.status in (401, 403):
                return AuditPicture(trouble=f"not for this role: {refused.problem.title}")
            return AuditPicture(trouble=refused.problem.title)
        except (UnreachableError, NotUnderstoodError) as failure:
            return AuditPicture(trouble=str(failure))
