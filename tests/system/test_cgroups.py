"""Limits of containers and batch systems, on made-up trees of control groups."""

from pathlib import Path

import psutil
import pytest

from pcfg_artifact.system import cgroups, machine

GB = 1 << 30


def tree(root: Path, membership: str, files: dict[str, str]) -> dict[str, Path]:
    (root / "self").write_text(membership)
    for name, text in files.items():
        path = root / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (root / "fs").mkdir(exist_ok=True)
    return {"root": root / "fs", "membership": root / "self"}


def test_without_control_groups_there_is_no_limit(tmp_path):
    here = {"root": tmp_path / "none", "membership": tmp_path / "neither"}
    assert cgroups.core_limit(**here) is None
    assert cgroups.memory_limit(**here) is None


def test_version_2_of_a_container_that_sees_its_own_group_as_the_root(tmp_path):
    """docker run --cpus 1.5 --memory 4g: 3 GB in use, of which 1 GB are files that can be given up."""
    here = tree(tmp_path, "0::/\n", {
        "cpu.max": "150000 100000", "memory.max": str(4 * GB), "memory.current": str(3 * GB),
        "memory.stat": f"anon {2 * GB}\nactive_file 7\ninactive_file {GB}"})
    assert cgroups.core_limit(**here) == 1.5
    assert cgroups.memory_limit(**here) == (4 * GB, 2 * GB)


def test_version_2_without_limits(tmp_path):
    here = tree(tmp_path, "0::/user.slice\n", {"user.slice/cpu.max": "max 100000", "user.slice/memory.max": "max"})
    assert cgroups.core_limit(**here) is None
    assert cgroups.memory_limit(**here) is None


def test_the_tightest_limit_of_all_groups_above_ours_holds(tmp_path):
    """Slurm: the job may use 8 GB and the step has no limit; Kubernetes: the pod has 2 cores, its container 3."""
    here = tree(tmp_path, "0::/job/step/task\n", {
        "job/memory.max": str(8 * GB), "job/memory.current": str(GB), "job/step/memory.max": "max",
        "job/step/task/memory.max": str(20 * GB), "job/step/task/memory.current": "0",
        "job/cpu.max": "200000 100000", "job/step/task/cpu.max": "300000 100000"})
    assert cgroups.core_limit(**here) == 2.0
    assert cgroups.memory_limit(**here) == (8 * GB, 7 * GB)


def test_version_1_with_controllers_in_folders_of_their_own(tmp_path):
    """The path is the host's; the container mounts its own group as the root of each controller."""
    here = tree(tmp_path, "9:name=systemd:/docker/a1\n4:memory:/docker/a1\n3:cpu,cpuacct:/docker/a1\n0::/docker/a1\n", {
        "cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": str(2 * GB), "memory/memory.usage_in_bytes": str(GB),
        "memory/memory.stat": f"inactive_file 5\ntotal_inactive_file {GB // 2}"})
    assert cgroups.core_limit(**here) == 0.5
    assert cgroups.memory_limit(**here) == (2 * GB, 2 * GB - GB // 2)


def test_version_1_without_limits(tmp_path):
    here = tree(tmp_path, "4:memory:/\n1:cpu:/\n", {
        "cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": str(GB)})
    assert cgroups.core_limit(**here) is None
    assert cgroups.memory_limit(**here) is None


def test_more_in_use_than_allowed_leaves_nothing(tmp_path):
    here = tree(tmp_path, "0::/\n", {"memory.max": str(GB), "memory.current": str(2 * GB)})
    assert cgroups.memory_limit(**here) == (GB, 0)


@pytest.mark.parametrize(("quota", "expected"), [(None, 3), (0.4, 1), (2.9, 2), (64.0, 3)])
def test_cores_are_those_that_affinity_and_quota_both_allow(monkeypatch, quota, expected):
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: [0, 1, 5], raising=False)
    monkeypatch.setattr(cgroups, "core_limit", lambda: quota)
    assert machine.available_cores() == expected


def test_memory_is_what_machine_and_group_both_have(monkeypatch, tmp_path):
    monkeypatch.setattr(cgroups, "memory_limit", lambda: cgroups.MemoryLimit(8192, 4096))
    assert machine.available_memory() == 4096
    assert machine.read_hardware(tmp_path).total_memory_gb == 8192 / GB
    monkeypatch.setattr(cgroups, "memory_limit", lambda: None)
    assert machine.available_memory() > 4096
