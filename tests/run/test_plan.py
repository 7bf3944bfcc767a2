"""What a plan says of costs and of recorded numbers."""

import dataclasses
from pathlib import Path

import pytest

from pcfg_artifact.errors import UsageError
from pcfg_artifact.run import pipeline
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.plan import describe
from pcfg_artifact.run.refusals import refuse_early
from pcfg_artifact.run.training_plan import memory_problems, target
from pcfg_artifact.system import machine
from pcfg_artifact.system.machine import Hardware


def test_the_plan_adds_up_the_recorded_seconds_of_the_stages(tmp_path):
    profile = load_profile("reduced")
    shown = describe(profile, tmp_path, pipeline.STAGES[:3]).splitlines()
    minutes = sum(profile.cost[stage.name][0] for stage in pipeline.STAGES[:3])
    assert [line.split()[2:4] for line in shown if line.startswith("to do")] == [[f"{minutes:.0f}", "s"]]


def test_the_plan_of_the_paper_says_its_training_and_its_hidden_states(tmp_path):
    shown = describe(load_profile("paper"), tmp_path, pipeline.STAGES).splitlines()
    for words in ("pre-training on 8 x A100 (39 GB, assumed: there is no GPU here), for 10,000 words:",
                  "probe: 25.88 GB of hidden states"):
        assert [line for line in shown if line.startswith(words)]


@pytest.mark.parametrize(("settings", "said"), [
    ([], "verify will compare every number with those of seed 0, which is recorded (seeds 0, 1, "),
    (["seed=1000"], "seed 1000 is not recorded"),
    (["probe.n_train=7"], "compare no number: settings of this run differ from the recorded ones")])
def test_the_plan_says_whether_recorded_numbers_apply(tmp_path, settings, said):
    assert said in describe(load_profile("smoke", settings), tmp_path, pipeline.STAGES)


def test_the_plan_says_that_other_trees_are_judged_by_claims_alone(tmp_path):
    shown = describe(load_profile("reduced", [], "embedded"), tmp_path, pipeline.STAGES)
    assert "compare no number: the recorded runs are of another treebank" in shown
    assert "verify will" not in describe(load_profile("reduced", [], "embedded"), tmp_path, pipeline.STAGES[:3])


# ---- GPUs -----------------------------------------------------------------------------------------------------------

T4S = Hardware(memory_gb=64.0, total_memory_gb=64.0, disk_gb=500.0, place=Path("/results"), can_write=True,
               shared_gb=8.0, gpus=("Tesla T4",) * 4, driver="580.10", cuda="13.0", gpu_memory_gb=(14.6,) * 4)


def test_the_plan_is_for_the_gpus_that_are_here(monkeypatch, tmp_path):
    monkeypatch.setattr("pcfg_artifact.run.plan.read_hardware", lambda out: T4S)
    shown = describe(load_profile("paper"), tmp_path, pipeline.STAGES)
    assert "pre-training on 4 x T4 (15 GB), for 10,000 words:" in shown
    assert "4 x 65 Tflop/s" in shown


def test_the_smallest_gpu_decides():
    mixed = dataclasses.replace(T4S, gpus=("NVIDIA A100-SXM4-80GB", "Tesla T4"), gpu_memory_gb=(79.2, 14.6))
    aim = target(load_profile("paper"), mixed)
    assert (aim.gpu.name, aim.memory_gb, aim.n_processes) == ("T4", 14.6, 2)


def test_a_gpu_that_is_too_small_is_refused_before_the_first_stage(monkeypatch, tmp_path):
    small = dataclasses.replace(T4S, gpu_memory_gb=(7.6,) * 4)
    monkeypatch.setattr(machine, "read_hardware", lambda out: small)
    with pytest.raises(UsageError, match=r"A12L12 would take 8.9 GB with micro-batches of 16,384 tokens, and a GPU "
                                         r"here \(T4\) has 7.6 GB; set pretrain.batch_tokens=[\d]+, or auto"):
        refuse_early(load_profile("paper", ["verify.expected=smoke"], "embedded"), tmp_path, pipeline.NAMES, False)
    problem = next(line for line in memory_problems(load_profile("paper"), small) if line.startswith("A12L12"))
    fitting = problem.partition("batch_tokens=")[2].partition(",")[0]
    for setting in (fitting, "auto"):
        fits = memory_problems(load_profile("paper", [f"pretrain.batch_tokens={setting}"]), small)
        assert not [line for line in fits if line.startswith("A12L12")]


def test_a_gpu_that_holds_the_models_is_not_refused():
    assert memory_problems(load_profile("paper"), T4S) == []
    eleven = dataclasses.replace(T4S, gpus=("NVIDIA GeForce RTX 2080 Ti",), gpu_memory_gb=(10.75,))
    assert memory_problems(load_profile("paper"), eleven) == []
    assert memory_problems(load_profile("smoke"), dataclasses.replace(T4S, gpus=(), gpu_memory_gb=())) == []
