"""What survives a server: its specs, as they were written last."""

from dataclasses import dataclass
from pathlib import Path

from infer_engine.fleet.spec_file import SpecDir, SpecFile


@dataclass(slots=True)
class Disk:
    written: SpecFile | None = None


class DiskSpecs(SpecDir):
    """One server's hold on the disk; once it is ``cut`` nothing it writes arrives."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(Path("disk"))
        self._disk = disk
        self._is_cut = False

    def cut(self) -> None:
        self._is_cut = True

    def open(self) -> None:
        """There is no file."""

    def read(self) -> tuple[SpecFile | None, str | None]:
        return self._disk.written, None

    def write(self, known: SpecFile) -> None:
        if not self._is_cut:
            self._disk.written = known
