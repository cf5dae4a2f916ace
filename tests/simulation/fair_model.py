"""In which order tenants must take turns, worked out the slow way."""

from typing import Any

Line = tuple[str, int]


class FairModel:
    def __init__(self) -> None:
        self._served: dict[tuple[Line, str], int] = {}
        self._reached: dict[Line, int] = {}
        self._serial: dict[Any, int] = {}

    def arrived(self, request: Any, waiting: list[Any]) -> None:
        """``waiting`` are the others. Who has nobody waiting begins where the line is."""
        self._serial[request] = len(self._serial)
        line = request.tier, request.priority
        key = line, request.tenant
        served = self._served.setdefault(key, 0)
        alone = all(
            (other.lane, other.priority, other.tenant) != (*line, request.tenant) or has_started(other)
            for other in waiting
        )
        if alone and not request.output:
            self._served[key] = max(served, self._reached.get(line, 0))

    def admitted(self, request: Any, resumed: bool, computed: int, passed: bool) -> None:
        if resumed:
            return
        line = request.tier, request.priority
        key = line, request.tenant
        if not passed and not request.aged:
            self._reached[line] = max(self._reached.get(line, 0), self._served[key])
        self._served[key] += request.total_tokens - computed

    def generated(self, request: Any) -> None:
        self._served[(request.tier, request.priority), request.tenant] += 1

    def order(self, waiting: list[Any]) -> list[Any]:
        """Of those of one tier. Of those that started the order is taken as it is given."""
        order = [request for request in waiting if has_started(request)]
        for priority in sorted({request.priority for request in waiting}, reverse=True):
            lines: dict[str, list[Any]] = {}
            for request in waiting:
                if request.priority == priority and not has_started(request):
                    lines.setdefault(request.tenant, []).append(request)
            for line in lines.values():
                line.sort(key=self._place, reverse=True)
            served = {
                tenant: self._served[(line[0].tier, priority), tenant] for tenant, line in lines.items()
            }
            while lines:
                tenant = min(lines, key=lambda tenant: (served[tenant], self._place(lines[tenant][-1])))
                request = lines[tenant].pop()
                served[tenant] += request.total_tokens
                order.append(request)
                if not lines[tenant]:
                    del lines[tenant]
        return order

    def _place(self, request: Any) -> tuple[float, int]:
        return request.arrival_s, self._serial[request]


def has_started(request: Any) -> bool:
    """Whether it stands before all that never ran: it ran, or it aged."""
    return request.preemptions > 0 or bool(request.output) or request.aged
