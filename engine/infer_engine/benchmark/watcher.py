"""A watch stream that is read and not looked at: what a console asks of the server, without a console."""

import httpx2

from infer_engine.benchmark.errors import BenchError

QUERY = "/control/v1/watch?replicas=r0&detail=blocks,roster&hz=4"


class Watcher:
    """``read_bytes`` so far."""

    def __init__(self) -> None:
        self.read_bytes = 0

    async def run(self, control_url: str) -> None:
        """Read until cancelled; BenchError when the server ends it."""
        transport = httpx2.AsyncHTTPTransport(uds=control_url.removeprefix("unix://"))
        async with (
            httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=30.0) as client,
            client.stream("GET", QUERY) as response,
        ):
            if response.status_code != 200:
                raise BenchError(f"the watch stream answered {response.status_code}")
            async for data in response.aiter_raw():
                self.read_bytes += len(data)
        raise BenchError("the server ended a watch stream")
