"""Problems that are found before a run begins, each with its fix."""

import dataclasses
from pathlib import Path

import pytest

from pcfg_artifact.errors import UsageError
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.refusals import refuse_early, scratch_bytes
from pcfg_artifact.system import gpus
from pcfg_artifact.system import machine as machine_module
from pcfg_artifact.system.machine import Hardware, Machine, Need, machine_problems, read_hardware, unused_gpu
from pcfg_artifact.treebank.splits import wsj_problems
from pcfg_artifact.workers.hidden_states import states_folder

GOOD = Hardware(memory_gb=16.0, total_memory_gb=32.0, disk_gb=100.0, place=Path("/results"), can_write=True,
               shared_gb=8.0, gpus=("A", "B"), driver="580.10", cuda="13.0")
NEED = Need(device="auto", n_gpus=None, processes=None, disk_gb=5.0)


def problems(machine=None, **need):
    return machine_problems(dataclasses.replace(GOOD, **(machine or {})), dataclasses.replace(NEED, **need))


def test_a_good_machine_has_no_problem():
    assert problems() == []
    assert problems({"gpus": (), "driver": None, "cuda": None}) == []
    assert problems({"shared_gb": None}) == []


@pytest.mark.parametrize(("machine", "need", "words"), [
    ({"memory_gb": 1.0}, {}, "1.0 GB of memory free, 2 GB needed"),
    ({"disk_gb": 3.0}, {}, "3.0 GB free at /results, 5.5 GB needed"),
    ({"can_write": False}, {}, "cannot be written by this user"),
    ({"gpus": ()}, {"device": "cuda"}, "the container was started without --gpus all"),
    ({"gpus": (), "driver": "535.183.01"}, {"device": "cuda"},
     "that CUDA needs driver 580 or newer; update the driver, or install a build of the same torch for an older CUDA"),
    ({"gpus": (), "driver": "520.61", "cuda": "12.6"}, {"device": "cuda"}, "needs driver 525 or newer"),
    ({"gpus": ("V100",), "capabilities": ((7, 0),), "built_for": ("sm_75", "sm_80", "compute_120")}, {},
     "V100 has compute capability 7.0, and this torch (CUDA 13.0) holds code for sm_75, sm_80, compute_120 only"),
    ({"gpus": (), "cuda": None}, {"device": "cuda"}, "torch is a CPU build"),
    ({"gpus": (), "driver": None, "cuda": None}, {"device": "cuda"}, "there is no GPU here"),
    ({}, {"n_gpus": 8}, "8 GPUs were asked for, 2 are visible"),
    ({"shared_gb": 0.0625}, {}, "/dev/shm has 0.06 GB, 1 GB needed to train on 2 GPUs; start the container"),
])
def test_each_problem_is_found_and_says_what_to_do(machine, need, words):
    [problem] = problems(machine, **need)
    assert words in problem
    assert any(verb in problem for verb in ("pass ", "set ", "install ", "lower ", "start ", "close "))


def test_where_any_device_will_do_a_gpu_that_cannot_be_used_is_said_and_the_cpu_taken():
    for machine in ({"gpus": ()}, {"gpus": (), "cuda": None}):
        assert problems(machine) == []
        assert "NVIDIA driver 580.10 is installed" in unused_gpu(dataclasses.replace(GOOD, **machine))
    assert unused_gpu(GOOD) is None
    assert unused_gpu(dataclasses.replace(GOOD, gpus=(), driver=None, cuda=None)) is None


def test_one_training_process_needs_no_shared_memory_and_the_cpu_no_gpu():
    assert problems({"shared_gb": 0.0625}, processes=1) == []
    assert problems({"gpus": (), "shared_gb": 0.0625}, device="cpu", n_gpus=8) == []


def test_this_machine_can_be_read(tmp_path):
    machine = read_hardware(tmp_path / "not" / "there")
    assert machine.place == tmp_path
    assert machine.can_write
    assert machine.disk_gb > 0


@pytest.mark.parametrize(("capability", "expected"), [
    ((7, 0), False), ((7, 5), True), ((8, 0), True), ((8, 9), True), ((9, 0), True), ((10, 3), False), ((12, 0), True),
    ((12, 1), True), ((13, 0), True)])
def test_a_gpu_runs_code_of_its_major_version_or_of_an_older_virtual_one(capability, expected):
    built_for = ("sm_75", "sm_80", "sm_86", "sm_90a", "sm_120", "compute_120")
    assert machine_module.can_run(capability, built_for) is expected


def test_a_gpu_below_windows_has_no_driver_in_proc(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_module, "DRIVER", tmp_path / "none")
    monkeypatch.setattr(machine_module, "WSL_GPU", tmp_path)
    monkeypatch.setattr(machine_module, "_gpus", lambda: {"gpus": ("RTX",), "cuda": "13.0"})
    found = read_hardware(tmp_path)
    assert (found.gpus, found.driver) == (("RTX",), "of unknown version")
    monkeypatch.setattr(machine_module, "WSL_GPU", tmp_path / "neither")
    assert read_hardware(tmp_path).gpus == ()


def test_the_hidden_states_of_the_deepest_model_count_as_disk():
    profile = load_profile("paper")
    n_words = 24_000 * (profile.cost["training"]["mean_length"] + 2)
    assert scratch_bytes(profile, "probe") == n_words * 768 * 2 * (13 + 13)
    assert 24e9 < scratch_bytes(profile, "probe") < 26e9
    assert scratch_bytes(profile, "control") == scratch_bytes(profile, "probe") // 4  # half the text, one model
    assert scratch_bytes(profile, "pretrain") == 0


def test_hidden_states_on_a_disk_of_the_node_count_there(tmp_path, monkeypatch):
    """Smoke needs some megabytes of them; here the node's disk has less."""
    here, full = tmp_path / "run", tmp_path / "node"
    read = machine_module.read_hardware
    monkeypatch.setattr(machine_module, "read_hardware", lambda out: dataclasses.replace(
        read(out), disk_gb=1e-6 if out == full else read(out).disk_gb))
    stages = ["probe"]
    assert refuse_early(load_profile("smoke"), here, stages, False) is None
    profile = load_profile("smoke", [f"machine.scratch={full}"])
    with pytest.raises(UsageError, match="machine.scratch: 0.0 GB free at .*, 0.0 GB needed in a folder"):
        refuse_early(profile, here, stages, False)


def test_hidden_states_on_a_disk_of_the_node_are_never_an_earlier_runs(tmp_path):
    machine = Machine("cpu", 1, scratch=str(tmp_path / "node"))
    folder = states_folder(tmp_path / "run" / "probe", machine)
    (folder / "A4L1").mkdir(parents=True)
    other = states_folder(tmp_path / "other" / "probe", machine)
    assert other != folder
    assert folder.is_dir()
    assert states_folder(tmp_path / "run" / "probe", machine) == folder
    assert not folder.exists()
    assert states_folder(tmp_path / "run" / "probe", Machine("cpu", 1)) == tmp_path / "run" / "probe" / "scratch"


WANTED = ("02", "03", "04")


def test_a_complete_wsj_and_another_treebank_are_both_accepted():
    assert wsj_problems({"02": 10, "03": 10, "04": 5, "22": 7, "23": 9}, WANTED, "22", 25, 7) == []
    assert wsj_problems({}, WANTED, "22", 25, 7) == []


@pytest.mark.parametrize(("sections", "words"), [
    ({"02": 10, "04": 5, "22": 7}, "sections 03 are missing: 15 trees in sections 02-04 and 7 in section 22, exp"),
    ({"02": 10, "03": 9, "04": 5, "22": 7}, "some sections are incomplete: 24 trees"),
    ({"02": 10, "03": 10, "04": 5}, "sections 22 are missing"),
])
def test_an_incomplete_wsj_is_refused_with_its_counts_by_section(sections, words):
    [problem] = wsj_problems(sections, WANTED, "22", 25, 7)
    assert words in problem
    assert "02: 10" in problem


@pytest.mark.parametrize(("text", "version"), [
    ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 2024\nGCC version: 12", "535.183.01"),
    ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n", "580.65.06"),
    ("something else", "of unknown version"), (None, None)])
def test_the_driver_version_is_read_where_the_kernel_says_it(tmp_path, monkeypatch, text, version):
    path = tmp_path / "version"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(machine_module, "DRIVER", path)
    assert machine_module._driver() == version


def test_what_the_environment_asks_of_the_arithmetic_is_named(monkeypatch):
    for name in machine_module.ARITHMETIC:
        monkeypatch.delenv(name, raising=False)
    assert machine_module.asked_arithmetic() == {}
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # how fast, not how
    assert machine_module.asked_arithmetic() == {"OPENBLAS_CORETYPE": "Haswell"}


class Driver:
    """NVIDIA's library with GPUs in these compute modes; it writes what it is asked for into the caller's number."""

    def __init__(self, *modes, code=0):
        self.modes, self.code = modes, code

    def cuInit(self, flags):
        return self.code

    def cuDeviceGetCount(self, count):
        count._obj.value = len(self.modes)
        return 0

    def cuDeviceGet(self, gpu, index):
        gpu._obj.value = index
        return 0

    def cuDeviceGetAttribute(self, found, attribute, gpu):
        assert attribute == gpus.COMPUTE_MODE
        found._obj.value = self.modes[gpu.value]
        return 0


@pytest.mark.parametrize(("driver", "expected"), [
    (Driver(0, 0), False), (Driver(0, gpus.EXCLUSIVE_PROCESS), True), (Driver(), False),
    (Driver(gpus.EXCLUSIVE_PROCESS, code=100), False)])
def test_gpus_that_serve_one_process_only_are_detected(driver, expected):
    assert gpus.are_exclusive(driver) is expected
    assert not gpus.are_exclusive()  # without a driver
