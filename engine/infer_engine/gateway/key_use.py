"""How many requests of each API key are under way, and whether one more may be."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from infer_engine.gateway.errors import ApiError
from infer_engine.gateway.keys import ApiKey


class KeyUse:
    """Bounded by the number of requests: a key without one under way is not kept."""

    def __init__(self) -> None:
        self._requests: Counter[str] = Counter()

    @contextmanager
    def one_of(self, key: ApiKey | None) -> Generator[None]:
        """Around a request. Raise ApiError (429) when its key has as many under way as it may have."""
        if key is None:
            yield
            return
        under_way = self._requests[key.id]
        if key.concurrency is not None and under_way >= key.concurrency:
            raise ApiError(
                429,
                f"{under_way} requests with this API key are under way, {key.concurrency} are allowed",
                code="key_concurrency",
                retry_after_s=1.0,
            )
        self._requests[key.id] += 1
        try:
            yield
        finally:
            self._requests[key.id] -= 1
            if not self._requests[key.id]:
                del self._requests[key.id]
