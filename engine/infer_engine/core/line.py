"""One line of waiting requests, in which tenants take turns by what they were served.

Inside a tenant it is first come, first served. Between tenants the next is whose account was charged least:
with the tokens of a prompt when it is admitted, less those found cached, and with every token generated. Who
comes after an absence starts where the line is by now, so that absence is no credit.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Protocol

from infer_engine.core.request import Account, Request

#: So many accounts of tenants that do not wait are kept before the least of them are forgotten.
MOST_IDLE = 1024

#: So many ranks that hold no more are kept before anybody looks for them.
MOST_STALE = 64

#: Charged so far, arrival, serial number: the least is next.
Rank = tuple[int, float, int]


class Barrier(Protocol):
    """Who is kept out by other bounds than room."""

    def bars(self, tenant: str, *, long: bool) -> bool: ...

    def passes_over(self, request: Request) -> bool:
        """Whether this very request was looked at and kept out."""
        ...


class Stream:
    """One tenant's long or short prompts in one line, in their order, each with its arrival and serial
    number."""

    __slots__ = ("account", "line", "long", "requests", "tenant")

    def __init__(self, line: "Line", account: Account, tenant: str, long: bool) -> None:
        self.line = line
        self.account = account
        self.tenant = tenant
        self.long = long
        self.requests: OrderedDict[Request, tuple[float, int]] = OrderedDict()

    def insert(self, request: Request, place: tuple[float, int]) -> bool:
        """Whether it is the first now. It is mostly the last, or the first."""
        if self.requests and place < next(iter(self.requests.values())):
            self.requests[request] = place
            self.requests.move_to_end(request, last=False)
            return True
        later: list[Request] = []
        for other in reversed(self.requests):
            if self.requests[other] < place:
                break
            later.append(other)
        self.requests[request] = place
        for other in reversed(later):
            self.requests.move_to_end(other)
        return len(self.requests) == 1

    def rank(self) -> Rank:
        """Of its first."""
        return (self.account.served, *next(iter(self.requests.values())))


class Line:
    """``fair`` lines go by account and arrival, others by arrival alone. Taking, adding and finding the next
    cost the logarithm of the number of tenants that wait."""

    def __init__(self, *, fair: bool) -> None:
        self._fair = fair
        self._accounts: dict[str, Account] = {}
        self._streams: dict[tuple[str, bool], Stream] = {}
        #: For short and for long prompts: a heap of streams by a rank that was theirs once and is not above
        #: what it is now; the number keeps streams from being compared.
        self._heaps: tuple[list[tuple[Rank, int, Stream]], ...] = ([], [])
        self._numbers = count()
        #: Where the line is: the account of whoever was admitted in turn last, before it was charged.
        self._reached = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def account(self, tenant: str) -> Account:
        account = self._accounts.get(tenant)
        if account is None:
            self._forget_idle()
            account = self._accounts[tenant] = Account()
        return account

    def add(self, request: Request, place: tuple[float, int], *, long: bool) -> Stream:
        account = self.account(request.tenant)
        if self._fair and not account.waiting:
            account.served = max(account.served, self._reached)
        account.waiting += 1
        key = request.tenant, long
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Stream(self, account, request.tenant, long)
        if stream.insert(request, place):
            self._raise(stream)
        self._size += 1
        return stream

    def _raise(self, stream: Stream) -> None:
        """The stream begins with somebody else. What it was ranked by before stays in the heap, for a
        while."""
        heap = self._heaps[stream.long]
        heappush(heap, (stream.rank(), next(self._numbers), stream))
        if len(heap) > MOST_STALE + 2 * len(self._streams):
            streams = [stream for stream in self._streams.values() if stream.long == heap[0][2].long]
            heap[:] = [(stream.rank(), next(self._numbers), stream) for stream in streams]
            heapify(heap)

    def remove(self, request: Request, stream: Stream) -> None:
        del stream.requests[request]
        stream.account.waiting -= 1
        self._size -= 1
        if not stream.requests:
            del self._streams[stream.tenant, stream.long]

    def charge(self, request: Request, tokens: int, *, in_turn: bool) -> None:
        """It was admitted; ``in_turn`` when it passed nobody."""
        if in_turn:
            self._reached = max(self._reached, request.account.served)
        request.account.served += tokens

    def order(self, barrier: Barrier | None = None) -> Iterator[Request]:
        """Who is next, and who then if that one is admitted, and so on. The barrier is asked anew each time:
        who is barred is left out, who is passed over is not charged. The line must not change meanwhile."""
        if len(self._streams) == 1:
            # Turns need two.
            (stream,) = self._streams.values()
            for request in stream.requests:
                if barrier is not None and barrier.bars(stream.tenant, long=stream.long):
                    return
                yield request
            return
        for heap in self._heaps:
            self._refresh(heap)
        yield from self._in_turn(_Ahead(self._heaps), barrier)

    def _in_turn(self, ahead: "_Ahead", barrier: Barrier | None) -> Iterator[Request]:
        while (cursor := ahead.next()) is not None:
            stream = cursor.stream
            if barrier is not None and barrier.bars(stream.tenant, long=stream.long):
                continue
            request = cursor.request
            yield request
            if self._fair and not (barrier is not None and barrier.passes_over(request)):
                ahead.charge(stream.account, request.total_tokens)
            ahead.put_next(cursor)

    def _refresh(self, heap: list[tuple[Rank, int, Stream]]) -> None:
        """Let the rank at the top be what it is now."""
        while heap:
            rank, _, stream = heap[0]
            if not stream.requests:
                heappop(heap)
            elif (now := stream.rank()) > rank:
                heapreplace(heap, (now, next(self._numbers), stream))
            else:
                return

    def _forget_idle(self) -> None:
        """Those that were served least: they would begin where the line is, or little further."""
        if len(self._accounts) < len(self._streams) + 2 * MOST_IDLE:
            return
        idle = [(account.served, tenant) for tenant, account in self._accounts.items() if not account.waiting]
        for _, tenant in sorted(idle)[:-MOST_IDLE]:
            del self._accounts[tenant]


class _Cursor:
    """How far a stream has been gone through."""

    __slots__ = ("request", "rest", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.rest = iter(stream.requests)
        self.request = next(self.rest)


class _Ahead:
    """Goes through heaps of streams in order without changing them, as far as it is asked to."""

    def __init__(self, heaps: tuple[list[tuple[Rank, int, Stream]], ...]) -> None:
        self._heaps = heaps
        self._numbers = count()
        self._served: dict[Account, int] = {}
        self._seen: set[Stream] = set()
        #: What may be next: a node of a heap (which heap, and where), whose rank is not above those below it,
        #: or a cursor.
        self._open: list[tuple[Rank, int, _Cursor | tuple[int, int]]] = []
        for number, heap in enumerate(heaps):
            if heap:
                self._put(heap[0][0], (number, 0))

    def charge(self, account: Account, tokens: int) -> None:
        self._served[account] = self._served.get(account, account.served) + tokens

    def put_next(self, cursor: _Cursor) -> None:
        """The one after ``cursor.request``, if there is one."""
        request = next(cursor.rest, None)
        if request is not None:
            cursor.request = request
            self._put(self._rank(cursor), cursor)

    def next(self) -> _Cursor | None:
        """Where the next request stands, by what was charged so far."""
        while self._open:
            rank, _, what = heappop(self._open)
            if isinstance(what, tuple):
                self._expand(*what)
            elif (now := self._rank(what)) > rank:
                self._put(now, what)  # its account was charged for another stream meanwhile
            else:
                return what
        return None

    def _expand(self, number: int, index: int) -> None:
        heap = self._heaps[number]
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                self._put(heap[child][0], (number, child))
        stream = heap[index][2]
        if stream.requests and stream not in self._seen:
            self._seen.add(stream)
            cursor = _Cursor(stream)
            self._put(self._rank(cursor), cursor)

    def _rank(self, cursor: _Cursor) -> Rank:
        account = cursor.stream.account
        return (self._served.get(account, account.served), *cursor.stream.requests[cursor.request])

    def _put(self, rank: Rank, what: _Cursor | tuple[int, int]) -> None:
        heappush(self._open, (rank, next(self._numbers), what))
