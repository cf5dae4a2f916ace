"""What outlives the server, and where: specs and the audit."""

import contextlib
import logging
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from infer_engine.fleet.spec_file import SpecDir, SpecDirError
from infer_engine.settings import ServerSettings, default_state_dir

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptState:
    """``directory`` None: nothing outlives this server. ``trouble`` says why specs do not, where they
    should."""

    directory: Path | None = None
    specs: SpecDir | None = None
    trouble: str | None = None


@contextlib.contextmanager
def kept_state(settings: ServerSettings, control_url: str, *, embedded: bool) -> Generator[KeptState]:
    """SpecDirError when the directory that was asked for cannot be used. Of a server that is one console's
    own or only simulates nothing is kept, unless a directory is given."""
    if settings.state_dir is None and (embedded or settings.deployment is not None):
        yield KeptState()
        return
    directory = Path(settings.state_dir or default_state_dir(control_url))
    specs = SpecDir(directory)
    trouble: str | None = None
    try:
        specs.open()
    except SpecDirError as error:
        if settings.state_dir is not None:
            raise
        trouble = f"specs do not outlive the server: {error}"
        log.warning("%s", trouble)
    try:
        yield KeptState(directory, None if trouble else specs, trouble)
    finally:
        specs.close()
