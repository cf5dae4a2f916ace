"""Who asks a server while it is measured: a watch stream that is read and not looked at, and a probe that
finds out how late the server's loop runs."""

import socket
import threading
import time

import httpx2

PROBE_S = 0.05


class Watch(threading.Thread):
    """A watch stream that is read and not looked at. ``bytes``, ``messages`` so far; those of the snapshot
    and how long it took apart."""

    def __init__(self, control_url: str, query: str) -> None:
        super().__init__(daemon=True)
        self._path, self._query = control_url.removeprefix("unix://"), query
        self.bytes = self.messages = self.snapshot_bytes = 0
        self.snapshot_s: float | None = None
        self._over = threading.Event()

    def run(self) -> None:
        began_s = time.perf_counter()
        tail = b""
        with socket.socket(socket.AF_UNIX) as plug:
            plug.connect(self._path)
            plug.settimeout(0.2)
            plug.sendall(f"GET /control/v1/watch?{self._query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            while not self._over.is_set():
                try:
                    data = plug.recv(1 << 18)
                except TimeoutError:
                    continue
                if not data:
                    return
                seen = tail + data
                self.bytes += len(data)
                self.messages += seen.count(b"\nid:") - tail.count(b"\nid:")
                if self.snapshot_s is None and b'"snapshot-end"' in seen:
                    self.snapshot_s, self.snapshot_bytes = time.perf_counter() - began_s, self.bytes
                tail = seen[-64:]

    def stop(self) -> None:
        self._over.set()
        self.join(5.0)


class Probe(threading.Thread):
    """Asks the gateway over and over whether it lives: how long it takes tells how late its loop runs."""

    def __init__(self, base_url: str) -> None:
        super().__init__(daemon=True)
        self._url = base_url
        self.taken_s: list[float] = []
        self._over = threading.Event()

    def run(self) -> None:
        with httpx2.Client(base_url=self._url, trust_env=False, timeout=30.0) as client:
            while not self._over.wait(PROBE_S):
                began_s = time.perf_counter()
                client.get("/livez").raise_for_status()
                self.taken_s.append(time.perf_counter() - began_s)

    def percentile_ms(self) -> float | None:
        self._over.set()
        self.join(31.0)
        ordered = sorted(self.taken_s)
        return 1_000 * ordered[len(ordered) * 99 // 100] if ordered else None
