"""What is wanted outlives the server, and every change of it has a version of its own."""

import json
from pathlib import Path

import msgspec
import pytest
from infer_engine.fleet import spec_file
from infer_engine.fleet.beginning import starting
from infer_engine.fleet.generation import Refusal
from infer_engine.fleet.spec_file import FILE_NAME, FleetWritten, SpecDir, SpecDirError, SpecFile
from infer_engine.protocol import ChangeLimits, ChangeTenant, Drain, Scale, SetHeadroom, Shed, TenantLimits
from support.fleets import running_fleet, until


async def test_a_new_server_finds_everything_as_it_was_left(tmp_path: Path) -> None:
    async with running_fleet(replicas=3, state=tmp_path, kv_blocks=20) as bench:
        fleet = bench.fleet
        fleet.draining.drain("r0", Drain())
        fleet.fencing.fence("r2", "bad fan")
        await fleet.limits.set_headroom(SetHeadroom(replica="r1", blocks=5))
        await fleet.limits.change(ChangeLimits(limits={"max_passes": 3}, replica="r0"))
        await fleet.tenants.change("ann", ChangeTenant(limits={"kv_share": 0.25}))
        await fleet.tenants.change("*", ChangeTenant(limits={"prompt_tokens": 900}))
        fleet.shedding.apply(Shed(on=True))
        versions = {each: fleet.specs.version(each) for each in ("fleet", "replica:r0", "tenant:ann")}
        await fleet.specs.saved()
        wanted = fleet.replica_ids()
        assert wanted == ["r0", "r1", "r2", "r3"], "another was started in the place of the fenced one"

    async with running_fleet(replicas=3, state=tmp_path, kv_blocks=20, loaded=False) as bench:
        fleet = bench.fleet
        bench.launcher.load_gate.set()
        await until(lambda: fleet.replica("r0").state == "drained", "drained as it was")
        await bench.ready(2)
        assert fleet.replica_ids() == wanted
        assert "r2" not in bench.launcher.lives, "fenced: no process"
        assert (fleet.replica("r2").state, fleet.replica("r2").error) == ("fenced", None)
        spec = fleet.replica("r2").spec
        assert spec is not None
        assert spec.fenced == "bad fan"
        await until(lambda: fleet.limits.now().replicas["r1"]["admit_limit"] == 15)
        await until(lambda: fleet.limits.now().replicas["r0"]["max_passes"] == 3)
        scheduler = bench.launcher.now("r1").loop
        assert scheduler is not None
        await until(lambda: scheduler.scheduler.shed)
        assert scheduler.scheduler.limits.tenants == {"ann": TenantLimits(kv_share=0.25, prompt_tokens=None)}
        assert fleet.tenants.now().default == TenantLimits(prompt_tokens=900)
        shown = fleet.status().fleet.spec
        assert shown is not None
        assert (shown.replicas, shown.shed) == (3, True)
        assert {each: fleet.specs.version(each) for each in versions} == versions
        await until(
            lambda: fleet.specs.observed_generation("replica:r0") == fleet.specs.generation("replica:r0")
        )


async def test_a_drain_that_the_server_did_not_live_to_see_ends_as_drained(tmp_path: Path) -> None:
    async with running_fleet(replicas=2, state=tmp_path, held=True) as bench:
        generations = [bench.submit(4, 50) for _ in range(2)]
        await bench.step_until("r0", lambda: any(each.emitted for each in generations))
        bench.fleet.draining.drain("r0", Drain())
        assert bench.fleet.replica("r0").state == "draining"
        await bench.fleet.specs.saved()
    async with running_fleet(replicas=2, state=tmp_path, loaded=False) as bench:
        bench.launcher.load_gate.set()
        # Both load at once: either may be first.
        await until(lambda: bench.fleet.replica("r0").state == "drained")
        await until(lambda: bench.fleet.replica("r1").state == "ready")
        assert bench.fleet.capacity.ready_replicas() == ["r1"]


async def test_every_change_has_its_version_whoever_made_it() -> None:
    async with running_fleet(replicas=2) as bench:
        specs, seen = bench.fleet.specs, set[str]()

        def fresh(target: str) -> bool:
            version = specs.version(target)
            new = version not in seen
            seen.add(version)
            return new

        assert fresh("replica:r0")
        assert not fresh("replica:r1"), "nobody changed anything yet"
        bench.fleet.draining.drain("r0", Drain())
        assert fresh("replica:r0")
        assert not fresh("replica:r0")
        bench.fleet.draining.undrain("r0")
        assert fresh("replica:r0"), "what it was before is another version"
        await bench.fleet.limits.set_headroom(SetHeadroom(percent=50))
        assert fresh("replica:r0")
        assert fresh("replica:r1")
        await bench.fleet.tenants.change("*", ChangeTenant(limits={"kv_share": 0.75}))
        assert fresh("tenant:*")
        assert not fresh("tenant:ann"), "it goes by the default"
        nobody = specs.version("tenant:ann")
        await bench.fleet.tenants.change("ann", ChangeTenant(limits={"kv_share": 0.5}))
        assert fresh("tenant:ann")
        [tenant] = bench.fleet.tenants.now().tenants
        assert tenant.resource_version == specs.version("tenant:ann")
        await bench.fleet.tenants.change("ann", ChangeTenant(forget=True))
        assert specs.version("tenant:ann") == nobody
        bench.fleet.shedding.apply(Shed(on=True))
        assert fresh("fleet")
        for unknown in ("replica:r9", "gateway", "replica:"):
            with pytest.raises(KeyError):
                specs.version(unknown)


async def test_what_could_not_be_written_is_in_force_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_fleet(replicas=2, state=tmp_path) as bench:
        fleet = bench.fleet

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(spec_file.os, "fsync", full)
            fleet.draining.drain("r0", Drain())
            with pytest.raises(Refusal) as refused:
                await fleet.specs.saved()
            assert (refused.value.problem.status, refused.value.problem.code) == (503, "specs_not_durable")
            assert "No space left" in refused.value.problem.detail
            assert "No space left" in str(fleet.status().fleet.specs_trouble)
            assert fleet.replica("r0").state in ("draining", "drained")
        assert "specs cannot be written" in caplog.text
        await until(lambda: fleet.status().fleet.specs_trouble is None, "written by the server itself")
        written = json.loads((tmp_path / FILE_NAME).read_text())
        assert written["replicas"]["r0"]["spec"]["cordoned"] is True


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 99}', b"\xff" * 100, b"[" * 100_000])
async def test_a_file_that_cannot_be_read_is_kept_and_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    async with running_fleet(replicas=1, state=tmp_path) as bench:
        trouble = str(bench.fleet.status().fleet.specs_trouble)
        [aside] = tmp_path.glob("*.unreadable-*")  # noqa: ASYNC240
        assert aside.name in trouble
        assert aside.read_bytes() == content
        bench.fleet.draining.drain("r0", Drain(force=True))
        await bench.fleet.specs.saved()
        assert bench.fleet.status().fleet.specs_trouble == trouble, "it stays said"
    directory = SpecDir(tmp_path)
    known, lost = directory.read()
    assert lost is None
    assert known is not None
    assert known.replicas["r0"].spec.cordoned


def test_one_directory_is_of_one_server(tmp_path: Path) -> None:
    first, second = SpecDir(tmp_path / "a"), SpecDir(tmp_path / "a")
    first.open()
    try:
        with pytest.raises(SpecDirError, match="another server uses it"):
            second.open()
    finally:
        first.close()
    second.open()
    second.close()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecDirError, match=r"Not a directory|File exists"):
        SpecDir(tmp_path / "file").open()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    directory = SpecDir(tmp_path)
    directory.open()
    known = _known(replicas=["r0", "r4"], configured=2)
    directory.write(known)
    assert directory.read() == (known, None)
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("*.new"))
    directory.close()


def test_another_number_of_replicas_is_a_new_wish() -> None:
    known = _known(replicas=["r0", "r4"], configured=3)
    assert starting(3, known).ids == ["r0", "r4"], "as it was scaled"
    new = starting(2, known)
    assert (new.ids, new.wanted.replicas) == (["r0", "r1"], 2)
    assert new.wanted.new_id() == "r7", "no id comes again"
    assert starting(9, known).wanted.new_id() == "r9"
    assert starting(2, None).ids == ["r0", "r1"]


def _known(*, replicas: list[str], configured: int) -> SpecFile:
    return SpecFile(
        book="b",
        changes=4,
        configured=configured,
        next_number=7,
        fleet=FleetWritten(replicas=len(replicas), generation=4),
        replicas={each: spec_file.ReplicaWritten() for each in replicas},
    )


async def test_scale_is_written_and_a_victim_is_not_back_after_a_restart(tmp_path: Path) -> None:
    async with running_fleet(replicas=2, state=tmp_path, max_replicas=4) as bench:
        started, victims = bench.fleet.resizing.begin(Scale(replicas=3))
        assert (started, victims) == (["r2"], [])
        await bench.ready(3)
        _, victims = bench.fleet.resizing.begin(Scale(replicas=2, victims=["r0"]))
        assert victims == ["r0"]
        await bench.fleet.specs.saved()  # the server ends before the victim does
        file = msgspec.json.decode((tmp_path / FILE_NAME).read_bytes(), type=SpecFile)
        assert list(file.replicas) == ["r1", "r2"]
    async with running_fleet(replicas=2, state=tmp_path) as bench:
        assert bench.fleet.replica_ids() == ["r1", "r2"]
