"""Interventions and dynamics on a small world: a training that keeps models on the way, every table, every control."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from pcfg_artifact.errors import CorruptArtifact
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.mlm.encoders import load_encoder
from pcfg_artifact.mlm.training import kept_steps
from pcfg_artifact.parsing.prefix.left_to_right import incremental_posteriors
from pcfg_artifact.probing.probes import PROBES
from pcfg_artifact.probing.settings import TREEBANK
from pcfg_artifact.run import config, pipeline
from pcfg_artifact.run.corpora import read_corpora
from pcfg_artifact.run.inputs import Inputs, kept_folders
from pcfg_artifact.run.stage_folder import Folder
from pcfg_artifact.stages.dynamics import scored_so_far
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.workers.jobs import read_finished

SOURCE = PCFG.from_rules(
    root={"S": 1.0},
    binary=[("S", "NP", "VP", 1.0), ("VP", "V", "NP", 0.4), ("VP", "VP", "PP", 0.3), ("VP", "V", "V", 0.3),
            ("PP", "P", "NP", 1.0), ("NP", "D", "N", 0.4), ("NP", "NP", "PP", 0.3), ("NP", "N", "N", 0.3)],
    lexical=[("V", "saw", 0.5), ("V", "dog", 0.5), ("P", "with", 0.5), ("P", "in", 0.5), ("D", "the", 0.6),
             ("D", "a", 0.4), ("N", "dog", 0.4), ("N", "saw", 0.3), ("N", "park", 0.3)])
SMALL = ["grammar.cutoff=0", "sample.n_pretraining=300", "sample.n_validation=60", "sample.n_probe_train=120",
         "sample.n_probe_test=60", "sample.max_length=12", "marginals.n_train=150", "marginals.n_masked=5",
         "marginals.max_length=12", "pretrain.models=[A2L2]", "pretrain.causal_models=[C2L2]",
         "pretrain.width=16", "pretrain.max_length=20",
         "pretrain.steps=40", "pretrain.schedule_steps=40", "pretrain.warmup_steps=4", "pretrain.n_kept=3",
         "pretrain.validate_every=40", "pretrain.save_every=15", "pretrain.n_curve=20", "pretrain.n_exact=20",
         "probe.n_train=100", "probe.n_test=50", "probe.max_length=12",
         "probe.widths=[2, 3]", "probe.epochs=2", "probe.milestones=[1]", "probe.n_seeds=1",
         "probe.linear_iterations=20", "probe.probes=[linear, 2-layer, nearest neighbour]",
         "probe.n_scatter=10", "probe.adjacent=none", "attention.max_length=12",
         "incremental.max_length=12", "incremental.n_exact=20", "incremental.n_train=60", "incremental.n_test=20",
         "intervene.max_length=12", "intervene.n_train=80", "intervene.n_test=60", "intervene.widths=[3, 5]",
         "intervene.n_questions=25", "intervene.n_constructed=12", "intervene.constructed_length=9",
         "intervene.mask_rate=0.4",
         "dynamics.n_train=60", "dynamics.n_test=40", "dynamics.n_questions=5", "dynamics.n_loss=20",
         "dynamics.n_attention=5"]
STAGES = ("grammar", "sample", "marginals", "pretrain", "probe", "incremental", "intervene", "dynamics")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with a probe that this test brings: worker processes of all stages must find it."""
    root = tmp_path_factory.mktemp("interventions")
    (root / "bank.trees").write_text("".join(f"{tree}\n" for tree in sample_trees(SOURCE, 400, 1, max_length=14)))
    profile = config.load_profile("smoke", SMALL, str(root / "bank.trees"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        from neighbour_probe import NeighbourProbe

        patch.setitem(PROBES, NeighbourProbe.name, NeighbourProbe)
        for stage in STAGES:
            pipeline.run(profile, root / "run", pipeline.select(only=stage))
    return profile, root / "run"


def numbers(run, stage: str) -> Numbers:
    return Numbers(Folder(run[1] / stage).metrics())


def test_models_are_kept_at_steps_that_grow_and_can_be_loaded(run):
    folders = kept_folders(Folder(run[1] / "pretrain"), "A2L2")
    assert list(folders) == [0, *kept_steps(40, 3), 40]
    weights = [load_encoder(folder)[0].get_input_embeddings().weight.detach().numpy() for folder in folders.values()]
    assert all(not np.array_equal(weights[k], weights[k + 1]) for k in range(len(weights) - 1))


def test_steps_are_log_spaced_and_end_before_the_last():
    assert kept_steps(6000, 12)[0] == 12
    assert len(kept_steps(6000, 12)) == 12
    assert max(kept_steps(6000, 12)) < 6000
    assert kept_steps(100, 0) == []
    assert kept_steps(1, 5) == []


def test_a_kept_model_that_was_changed_is_found(run, tmp_path):
    from pcfg_artifact.run.stage_folder import StageDir

    profile, root = run
    out = StageDir(root / "pretrain")
    read_finished(profile.pretrain, out, "A2L2")
    file = next((root / "pretrain" / "kept" / "A2L2").glob("*/config.json"))
    text = file.read_text()
    try:
        file.write_text(text + " ")
        with pytest.raises(CorruptArtifact, match="does not have the SHA-256"):
            read_finished(profile.pretrain, out, "A2L2")
    finally:
        file.write_text(text)


@pytest.mark.parametrize(("stage", "tables"), [("intervene", {"interventions"}),
                                               ("dynamics", {"dynamics", "half_way"})])
def test_the_stages_write_their_tables(run, stage, tables):
    assert {metric.table for metric in numbers(run, stage).metrics} == tables


def test_every_slope_has_its_error_and_its_controls(run):
    found = numbers(run, "intervene")
    ways = ["linear", "2-layer", "nearest neighbour", "random direction", "control task", "spans of other sentences"]
    slopes = {"table": "interventions", "metric": "slope"}
    for metric in found.select({**slopes, "model": ["A2L2", "A2L2-random"], "layer": "middle", "probe": ways}):
        assert metric.error is not None, metric
    by_layer = found.select({**slopes, "model": "A2L2", "layer": [0, 1, 2], "probe": "linear"})
    assert by_layer[2].value == pytest.approx(0, abs=1e-6)  # after the last layer nothing travels
    completeness, = found.select({**slopes, "model": "A2L2", "layer": "middle", "probe": "linear",
                                  "metric": "completeness"})
    assert completeness.value > 0


def test_the_positive_control_is_exact(run):
    slope_off_by, chart_error, agreeing_signs = numbers(run, "intervene").select(
        {"table": "interventions", "model": "theorem_3.2", "metric": ["slope_off_by", "chart_error", "agreeing_signs"]})
    assert slope_off_by.value < 1e-6
    assert chart_error.value < 1e-9
    assert agreeing_signs.value == 1.0


@pytest.mark.parametrize("model", ["A2L2", "C2L2"])
def test_curves_have_a_point_for_every_kept_step(run, model):
    found = numbers(run, "dynamics")
    steps = [0, *kept_steps(40, 3), 40]
    read = {"probe": "linear", "setting": "treebank"}
    curves = [{"metric": "excess"}, {**read, "input": "EOS", "convention": "PB", "metric": "sentence_f1"},
              {**read, "width": [2, 3], "metric": "pearson"},
              {"setting": "treebank", "layer": [1, 2], "metric": "attended_distance"}]
    if model == "A2L2":  # interventions are on masked words
        curves.append({"probe": ["linear", "random direction"], "metric": "slope"})
    points = [found.select({"table": "dynamics", "model": model, "step": steps, **curve}) for curve in curves]
    assert sum(map(len, points)) == sum(metric.model == model for metric in found.of_table("dynamics"))
    first, *_, last = points[0]
    assert 0 < last.value < first.value
    half_way, = found.select({"table": "half_way", "model": model, "metric": "excess"})
    assert 0 < half_way.value < 40


def test_a_causal_model_is_asked_for_what_the_words_so_far_say(run):
    """Its spans have their probability given the words up to their end, those without a score none."""
    inputs = Inputs({stage: run[1] / stage for stage in STAGES[:-1]}, "none")
    grammar = inputs.pcfg()
    train = read_corpora(inputs, 12, 10, 5)[0][TREEBANK.training.name]
    train = dataclasses.replace(train, scores=[None, *train.scores[1:]])
    scores = scored_so_far(grammar, train, Machine("cpu", 2)).scores
    assert scores[0] is None
    for words, spans in zip(train.sentences[1:], scores[1:], strict=True):
        so_far = list(incremental_posteriors(grammar, words))
        for j in range(1, len(words) + 1):
            assert spans[:j, j] == pytest.approx(so_far[j].spans[:j, j], abs=1e-9)


def test_the_loss_of_a_causal_model_is_that_of_the_stage_before(run):
    """The last point of the curve, and the table `next_words`, on the same 20 sentences of at most 12 words."""
    expected, = numbers(run, "incremental").select({"table": "next_words", "model": "C2L2", "metric": "excess"})
    found, = numbers(run, "dynamics").select({"table": "dynamics", "model": "C2L2", "step": 40, "metric": "excess"})
    assert found.value == pytest.approx(expected.value, rel=1e-6)


def test_a_finished_stage_is_not_run_again(run, capsys):
    profile, root = run
    pipeline.run(profile, root, pipeline.select(only="dynamics"))
    assert "[dynamics] skipped" in capsys.readouterr().err


def test_the_tool_says_both_answers(run, capsys):
    from pcfg_artifact import cli

    _, root = run
    model, grammar = root / "pretrain" / "models" / "A2L2", root / "grammar" / "vm"
    sentence = "the dog saw a [MASK] in the park"  # the park of seeing, or of what is seen
    command = ["intervene", "--model", str(model), "--grammar", str(grammar), sentence, "--sentences", "40"]
    assert cli.main([*command, "--span", "3:8"]) == 0
    shown = capsys.readouterr().out
    assert "exact probability that it is a constituent: 0." in shown
    assert "exact inference" in shown
    assert "the model" in shown
    assert cli.main([*command, "--span", "3:8", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["probe_reads"][1:] == pytest.approx([1.0, 0.0], abs=0.01)
    for span, message in (("0:2", "without the span 0:2"), ("1:3", "with the span 1:3"), ("3", "expected I:J"),
                          ("7:12", "0 <= I < J <= 8")):
        assert cli.main([*command, "--span", span]) == 2
        assert message in capsys.readouterr().err
    assert cli.main([*command[:5], "the dog saw a park", "--span", "1:3"]) == 2
    assert "no [MASK]" in capsys.readouterr().err
    assert storage.read_json(root / "intervene" / "setup.json")["middle"] == 1
