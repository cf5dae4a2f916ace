"""Downloads one wheel through this interpreter's pip, so that indexes, proxies and certificates are the
user's own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

_POLL_S = 0.1
#: No byte for this long: the network is gone.
_STALL_S = 120.0
_MOST_S = 1800.0
_SHOWN_CHARACTERS = 1500


class PipDownloadError(Exception):
    """``str()`` says why, with the last of what pip said."""


def pip_download(requirement: str, work: Path, received: Callable[[int], None]) -> Path:
    """Download the wheel of ``requirement`` (``name==version``), without its dependencies, below ``work``.

    ``received`` is told the bytes that have arrived so far. Nothing of the package is executed. Raises
    PipDownloadError; pip has ended when this returns or raises.
    """
    arriving, wheels, log = work / "arriving", work / "wheels", work / "pip.log"
    arriving.mkdir()
    wheels.mkdir()
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
        "download",
        "--no-deps",
    ]
    command += [
        "--only-binary=:all:",
        "--no-cache-dir",
        "--progress-bar=off",
        "--dest",
        str(wheels),
        requirement,
    ]
    # pip writes what arrives into its temporary directory: there the growth can be seen.
    environment = {**os.environ, "TMPDIR": str(arriving)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
    try:
        _wait(process, work, received)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    if process.returncode:
        raise PipDownloadError(f"pip download {requirement} ended with {process.returncode}:\n{_last(log)}")
    found = list(wheels.glob("*.whl"))
    if len(found) != 1:
        raise PipDownloadError(f"pip download {requirement} left {len(found)} wheels, not one")
    return found[0]


def _wait(process: subprocess.Popen[bytes], work: Path, received: Callable[[int], None]) -> None:
    started_s = grown_s = time.monotonic()
    most_bytes = 0
    while True:
        try:
            process.wait(timeout=_POLL_S)
            return
        except subprocess.TimeoutExpired:
            now_s = time.monotonic()
        size = _bytes_below(work)
        if size > most_bytes:
            most_bytes, grown_s = size, now_s
            received(size)
        if now_s - grown_s > _STALL_S:
            raise PipDownloadError(f"nothing has arrived for {_STALL_S:.0f} s")
        if now_s - started_s > _MOST_S:
            raise PipDownloadError(f"it was not done after {_MOST_S:.0f} s")


def _bytes_below(directory: Path) -> int:
    total = 0
    for file in directory.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:
            continue  # pip moved or removed it meanwhile
    return total


def _last(log: Path) -> str:
    text = log.read_text(errors="replace").strip()
    if "No module named pip" in text:
        return f"{text}\npip is missing from this Python; `{sys.executable} -m ensurepip` brings it."
    return text[-_SHOWN_CHARACTERS:]
