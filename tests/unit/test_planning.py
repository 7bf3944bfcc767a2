"""The arithmetic of a plan, beside the slow way to count."""

from pathlib import Path

import pytest

from pcfg_artifact import cells
from pcfg_artifact.config import load_profile
from pcfg_artifact.machine import Machine
from pcfg_artifact.mlm.model import Shape
from pcfg_artifact.planning import n_fits
from pcfg_artifact.stages.probe import tasks_of
from pcfg_artifact.workers.probe_fits import Context


@pytest.mark.parametrize("name", ["smoke", "reduced", "paper"])
def test_fits_are_counted_as_the_stage_makes_them(name):
    profile = load_profile(name)
    base = cells.roles_of(profile.pretrain.models).base
    probes = dict.fromkeys(profile.probe.probes)
    context = Context(profile.probe, probes, {}, base, {}, Machine("cpu", 1), Path("none"), Path("none"))
    context.last.update({model: Shape.parse(model).n_layers for model in profile.pretrain.models})
    if profile.probe.random_weights:
        context.last[cells.untrained(base)] = context.last[base]
    n_trainings = len({setting.training for setting in cells.SETTINGS})
    slow = sum(len(tasks_of(context, unit)) for model in context.last for unit in context.units(model))
    assert n_fits(profile, "probe") == slow * n_trainings


def test_the_control_tasks_of_the_paper():
    assert n_fits(load_profile("paper"), "control") == 2 * (13 + 2 * 5)  # probes x (layers + ends x widths)
