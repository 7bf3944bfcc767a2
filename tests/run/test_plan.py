"""The arithmetic of a plan, beside the slow way to count."""

import dataclasses
from pathlib import Path

import pytest

from pcfg_artifact.metrics.models import roles_of, untrained
from pcfg_artifact.mlm.model import parse_shape
from pcfg_artifact.probing.settings import SETTINGS
from pcfg_artifact.run import pipeline
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.plan import describe, n_fits
from pcfg_artifact.run.stage_work import MEASURED, WORK
from pcfg_artifact.stages.probe import tasks_of
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.workers.probe_fits import Context


@pytest.mark.parametrize("name", ["smoke", "reduced", "paper"])
def test_fits_are_counted_as_the_stage_makes_them(name):
    profile = load_profile(name)
    base = roles_of(profile.pretrain.models).base
    probes = dict.fromkeys(profile.probe.probes)
    context = Context(profile.probe, probes, {}, base, {}, Machine("cpu", 1), Path("none"), Path("none"))
    context.last.update({model: parse_shape(model).layers for model in profile.pretrain.models})
    if profile.probe.random_weights:
        context.last[untrained(base)] = context.last[base]
    n_trainings = len({setting.training for setting in SETTINGS})
    slow = sum(len(tasks_of(context, unit)) for model in context.last for unit in context.units(model))
    assert n_fits(profile, "probe") == slow * n_trainings


def test_the_control_tasks_of_the_paper():
    assert n_fits(load_profile("paper"), "control") == 2 * (13 + 2 * 5)  # probes x (layers + ends x widths)


def test_the_plan_of_the_paper_has_the_arithmetic_of_every_stage(tmp_path):
    assert {*WORK, "pretrain", "probe", "control"} == set(pipeline.NAMES)
    shown = describe(load_profile("paper"), tmp_path, pipeline.STAGES).splitlines()
    for stage in WORK:
        assert [line for line in shown if line.startswith(f"  {stage} ") and "measured" in line and "assumed" in line]
    for words in ("pre-training, for 10,000 words", "probe: 644 fits", "control: 46 fits"):
        assert any(line.startswith(words) for line in shown)
    assert sum("assumed: no GPU has run this" in line for line in shown) == 3


def test_the_times_of_the_measured_profile_follow_from_themselves():
    measured = load_profile(MEASURED)
    for stage, work in WORK.items():
        assert work.seconds(measured, measured, stage) == pytest.approx(measured.cost[stage][0])


def test_the_plan_allows_for_more_than_the_arithmetic():
    paper, measured = load_profile("paper"), load_profile(MEASURED)
    for stage, work in WORK.items():
        assert work.seconds(paper, measured, stage) <= paper.cost[stage][0], stage


def test_twice_the_trees_on_as_many_cores_take_twice_as_long():
    measured = load_profile(MEASURED)
    about = {**measured.cost["training"], "trees": 2 * measured.cost["training"]["trees"]}
    doubled = dataclasses.replace(measured, cost={**measured.cost, "training": about})
    assert WORK["grammar"].seconds(doubled, measured, "grammar") == pytest.approx(2 * measured.cost["grammar"][0])


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
