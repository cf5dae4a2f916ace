"""How often the kernel killed for want of memory, as its files tell it."""

from pathlib import Path

import pytest
from infer_engine.replica.oom import oom_kills


def machine(tmp_path: Path, groups: str, **files: str) -> tuple[Path, Path]:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text(groups)
    for name, content in files.items():
        path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return proc, cgroup


V2 = "0::/system.slice/infer.service\n"
V1 = "9:cpu:/\n4:hugetlb,memory:/app\n0::/\n"
EVENTS = "low 0\noom 4\noom_kill 3\noom_group_kill 0\n"


@pytest.mark.parametrize(
    ("groups", "files", "count"),
    [
        (
            V2,
            {"cgroup__system.slice__infer.service__memory.events": EVENTS, "proc__vmstat": "oom_kill 9\n"},
            3,
        ),
        (V2, {"cgroup__memory.events": EVENTS}, 3),
        (V1, {"cgroup__memory__app__memory.oom_control": "oom_kill_disable 0\noom_kill 2\n"}, 2),
        (V1, {"proc__vmstat": "nr_free_pages 77\noom_kill 9\n"}, 9),
        (V1, {"cgroup__memory__app__memory.oom_control": "under_oom 0\n", "proc__vmstat": "x 1\n"}, None),
        (V2, {}, None),
    ],
)
def test_the_group_tells_before_the_machine(
    tmp_path: Path, groups: str, files: dict[str, str], count: int | None
) -> None:
    assert oom_kills(*machine(tmp_path, groups, **files)) == count


def test_this_machine_tells() -> None:
    if Path("/proc/vmstat").exists():
        assert oom_kills() is not None
