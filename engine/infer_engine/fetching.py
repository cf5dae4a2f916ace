"""Fetching the model in a process of its own: it can take minutes, and must end when the server does."""

import asyncio
import logging
import sys
from pathlib import Path

from infer_engine.model.errors import ModelUnavailable

log = logging.getLogger(__name__)

#: How long the fetching process may take to end by itself when it is not wanted any more.
END_S = 3.0


async def fetch_model(name: str) -> Path:
    """The model's file, fetched first if need be; progress goes to the log. ModelUnavailable when it cannot
    be had. The process holds a lifeline: however this one ends, it does not stay."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "infer_engine",
        "fetch",
        "--file-only",
        "--lifeline",
        "--model",
        name,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        said, path = await asyncio.gather(_follow(process.stderr), _read(process.stdout))
        code = await process.wait()
    except asyncio.CancelledError:
        await _end(process)
        raise
    if code != 0:
        raise ModelUnavailable(" ".join(said[-4:]) or f"fetching the model ended with {code}")
    return Path(path)


async def _follow(stream: asyncio.StreamReader | None) -> list[str]:
    """Log each line as it comes; all of them."""
    lines: list[str] = []
    while stream is not None and (line := await stream.readline()):
        text = line.decode(errors="replace").rstrip().removeprefix("infer-engine: ")
        lines.append(text)
        log.info("%s", text)
    return lines


async def _read(stream: asyncio.StreamReader | None) -> str:
    return "" if stream is None else (await stream.read()).decode().rstrip("\n")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
