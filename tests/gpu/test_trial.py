"""`doctor --gpu` on a pretended GPU: every part of it runs there, and faults planted in them are named."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pcfg_artifact import cli
from pcfg_artifact.errors import StageError
from pcfg_artifact.mlm.training import Rank
from pcfg_artifact.run import pipeline
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.system import machine
from pcfg_artifact.system.machine import Hardware
from pcfg_artifact.workers import gpu_trial, launch

SMALL = ["pretrain.models=[A2L1, A2L2]", "pretrain.causal_models=[C2L1]", "pretrain.width=16", "pretrain.batch_size=8",
         "pretrain.batch_tokens=128", "pretrain.max_length=30", "probe.max_length=30", "attention.max_length=30",
         "incremental.max_length=30", "intervene.max_length=30", "probe.epochs=2", "probe.linear_iterations=3"]
HARDWARE = Hardware(memory_gb=16.0, total_memory_gb=32.0, disk_gb=100.0, place=Path("."), can_write=True, shared_gb=8.0,
                    gpus=("A pretended GPU",), driver="580.1", cuda="13.0", gpu_memory_gb=(10.0,))
GPU = Rank(device="cuda:0")


@pytest.fixture
def profile(monkeypatch):
    monkeypatch.setattr(gpu_trial, "N_STATES", 200)
    return load_profile("smoke", SMALL)


def test_every_part_runs_on_the_gpu_and_says_what_it_took_beside_the_plan(profile, gpus):
    lines = list(gpu_trial.trial(profile, GPU, HARDWARE))
    assert lines[0].startswith("1 process(es), A pretended GPU, float32; planned for 1 x unknown GPU (10 GB)")
    assert [line.split()[0] for line in lines[1:4]] == ["A2L1", "A2L2", "C2L1"]
    assert all("s a step (planned 0." in line and "MB of tensors (planned" in line for line in lines[1:4])
    for part, line in zip(("a fit of the probe linear", "a fit of the probe 2-layer", "hidden states of",
                           "Inside-Outside of"), lines[4:], strict=True):
        assert line.startswith(part)
    assert gpus.n_operations > 1000


@pytest.mark.parametrize(("part", "error", "said"), [
    ("one_training_step", torch.OutOfMemoryError("x"), r"A2L1: process 0 of 1 on .* \(cuda:0\) ran out of memory; set "
                                                       r"pretrain.batch_tokens=auto"),
    ("one_fit", RuntimeError("no kernel image is available"), "a fit of the probe linear: process 0 .* no kernel"),
    ("one_extraction", RuntimeError("CUDNN_STATUS"), "hidden states: process 0 of 1 on .* failed: CUDNN_STATUS")])
def test_a_part_that_fails_is_named_with_its_rank_and_host(profile, gpus, monkeypatch, part, error, said):
    def fail(*args):
        raise error

    monkeypatch.setattr(gpu_trial, part, fail)
    with pytest.raises(StageError, match=said):
        list(gpu_trial.trial(profile, GPU, HARDWARE))


def test_a_chart_that_is_wrong_on_the_gpu_is_found(profile, gpus, monkeypatch):
    charts = gpu_trial.inside_outside

    def wrong(grammar, sentences, **options):
        found = charts(grammar, sentences, **options)
        return [SimpleNamespace(log_prob=chart.log_prob * 1.001) for chart in found] if "device" in options else found

    monkeypatch.setattr(gpu_trial, "inside_outside", wrong)
    with pytest.raises(StageError, match="Inside-Outside on cuda:0 differs from the CPU"):
        gpu_trial.one_chart(GPU)


@pytest.fixture
def pretended_processes(monkeypatch):
    """Processes of the trial pretend a GPU, and this machine says that it has one."""
    start = launch.start
    monkeypatch.setattr(launch, "start", lambda command, log: start(
        (str(Path(__file__).with_name("pretended_trial.py")), *command[2:]), log))
    monkeypatch.setattr(machine, "read_hardware", lambda out: HARDWARE)
    monkeypatch.setattr(gpu_trial, "read_hardware", lambda out: HARDWARE)


def test_doctor_tries_the_gpus_in_processes_of_their_own(pretended_processes, capsys):
    settings = [part for setting in SMALL for part in ("--set", setting)]
    assert cli.main(["doctor", "--gpu", "--profile", "smoke", *settings]) == 0
    said = capsys.readouterr().out
    assert "Inside-Outside of 9 sentences" in said
    assert "C2L1" in said


def test_doctor_without_a_gpu_has_nothing_to_try(capsys):
    assert cli.main(["doctor", "--gpu"]) == 1
    assert "there is no GPU here to try" in capsys.readouterr().out


def test_a_profile_that_wants_it_tries_the_gpus_before_its_first_stage(pretended_processes, monkeypatch, tmp_path,
                                                                      capsys):
    profile = load_profile("smoke", [*SMALL, "machine.trial=true", "machine.device=cuda"])
    monkeypatch.setattr(pipeline, "refuse_early", lambda *rest: None)

    def first_stage(*rest):
        raise StageError("the first stage begins")

    monkeypatch.setattr(pipeline, "run_stage", first_stage)
    with pytest.raises(StageError, match="the first stage begins"):
        pipeline.run(profile, tmp_path, pipeline.STAGES)
    said = capsys.readouterr().err
    assert said.index("trying the GPUs") < said.index("Inside-Outside of 9 sentences") < said.index("[grammar]")
    monkeypatch.setattr(gpu_trial, "run_trial", lambda *rest: pytest.fail("there is nothing to try"))
    quiet = dataclasses.replace(profile, machine=dataclasses.replace(profile.machine, trial=False))
    for chosen, stages in ((quiet, pipeline.STAGES), (profile, pipeline.STAGES[:2])):
        with pytest.raises(StageError, match="the first stage begins"):
            pipeline.run(chosen, tmp_path, stages)
