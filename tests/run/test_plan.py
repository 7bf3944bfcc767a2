"""What a plan says of costs and of recorded numbers."""

import pytest

from pcfg_artifact.run import pipeline
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.plan import describe


def test_the_plan_adds_up_the_recorded_seconds_of_the_stages(tmp_path):
    profile = load_profile("reduced")
    shown = describe(profile, tmp_path, pipeline.STAGES[:3]).splitlines()
    minutes = sum(profile.cost[stage.name][0] for stage in pipeline.STAGES[:3])
    assert [line.split()[2:4] for line in shown if line.startswith("to do")] == [[f"{minutes:.0f}", "s"]]


def test_the_plan_of_the_paper_says_its_training_and_its_hidden_states(tmp_path):
    shown = describe(load_profile("paper"), tmp_path, pipeline.STAGES).splitlines()
    for words in ("pre-training, for 10,000 words", "probe: 25.88 GB of hidden states"):
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
