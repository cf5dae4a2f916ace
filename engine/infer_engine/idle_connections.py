"""How long a client keeps a connection that nothing goes over.

Servers on uvicorn (ours, vLLM, SGLang) close one that was idle for five seconds. A request that is sent just
then is lost, which httpx2 tells as "server disconnected without sending a response" and does not send again.
"""

import httpx2

#: An older one is not used again. Far enough from five seconds for a slow network and a busy machine.
KEEP_S = 2.0
#: httpx2's own, where nobody knows better.
MOST, MOST_IDLE = 100, 20


def limits(most: int | None = MOST, most_idle: int = MOST_IDLE) -> httpx2.Limits:
    """Of a pool of connections: at most so many, so many of them idle."""
    return httpx2.Limits(max_connections=most, max_keepalive_connections=most_idle, keepalive_expiry=KEEP_S)
