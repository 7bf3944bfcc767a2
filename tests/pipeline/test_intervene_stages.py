"""Interventions and dynamics on a small world: a training that keeps models on the way, every table, every control."""

import dataclasses
import json

import numpy as np
import pytest

from pcfg_artifact import cells, config, pipeline, storage
from pcfg_artifact.artifacts import Folder
from pcfg_artifact.corpora import read_corpora
from pcfg_artifact.encoders import kept_folders, load_encoder
from pcfg_artifact.errors import CorruptArtifact
from pcfg_artifact.grammar import PCFG, sample_trees
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.mlm.training import kept_steps
from pcfg_artifact.owners import tables_of
from pcfg_artifact.parsing.prefix import incremental_posteriors
from pcfg_artifact.stages.dynamics import scored_so_far
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
         "pretrain.initialisation=random", "probe.n_train=100", "probe.n_test=50", "probe.max_length=12",
         "probe.widths=[2, 3]", "probe.epochs=2", "probe.milestones=[1]", "probe.n_seeds=1",
         "probe.linear_iterations=20", "probe.n_scatter=10", "probe.adjacent=none", "attention.max_length=12",
         "incremental.max_length=12", "incremental.n_exact=20", "incremental.n_train=60", "incremental.n_test=20",
         "intervene.max_length=12", "intervene.n_train=80", "intervene.n_test=60", "intervene.widths=[3, 5]",
         "intervene.n_questions=25", "intervene.n_constructed=12", "intervene.constructed_length=9",
         "intervene.mask_rate=0.4",
         "dynamics.n_train=60", "dynamics.n_test=40", "dynamics.n_questions=5", "dynamics.n_loss=20",
         "dynamics.n_attention=5"]
STAGES = ("grammar", "sample", "marginals", "pretrain", "probe", "incremental", "intervene", "dynamics")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("interventions")
    (root / "bank.trees").write_text("".join(f"{tree}\n" for tree in sample_trees(SOURCE, 400, 1, max_length=14)))
    profile = config.load_profile("smoke", SMALL, str(root / "bank.trees"))
    for stage in STAGES:
        pipeline.run(profile, root / "run", pipeline.select(only=stage))
    return profile, root / "run"


def numbers(run, stage: str) -> dict[cells.Cell, float]:
    return {cells.Cell(m.table, m.row, m.column): m.value for m in Folder(run[1] / stage).metrics()}


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
    from pcfg_artifact.artifacts import StageDir

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


@pytest.mark.parametrize("stage", ["intervene", "dynamics"])
def test_the_stages_write_their_tables(run, stage):
    assert {cell.table for cell in numbers(run, stage)} == set(tables_of(stage))


def test_every_slope_has_its_error_and_its_controls(run):
    found = numbers(run, "intervene")
    for way in ("linear probe", "2-layer probe", "random direction", "control task", "spans of other sentences"):
        for column in ("slope", "slope error"):
            assert cells.intervention("A2L2", way, column) in found, (way, column)
            assert cells.intervention("A2L2-random", way, column) in found
    assert {cell.row for cell in found if cell.table == "figure_interventions"} >= {
        f"A2L2 linear probe L{layer}" for layer in range(3)}
    # after the last layer nothing travels
    assert found[cells.intervention_by_layer("A2L2", "linear probe", 2, "slope")] == pytest.approx(0, abs=1e-6)
    assert found[cells.intervention("A2L2", "linear probe", "completeness")] > 0


def test_the_positive_control_is_exact(run):
    found = numbers(run, "intervene")
    assert found[cells.intervention(cells.CONSTRUCTED, "", "slope off by")] < 1e-6
    assert found[cells.intervention(cells.CONSTRUCTED, "", "chart error")] < 1e-9
    assert found[cells.intervention(cells.CONSTRUCTED, "", "agreeing signs")] == 1.0


@pytest.mark.parametrize("model", ["A2L2", "C2L2"])
def test_curves_have_a_point_for_every_kept_step(run, model):
    found = numbers(run, "dynamics")
    quantities = {"loss above optimum", "tree F1", "marginals width 2", "marginals width 3", "attended distance L1",
                  "attended distance L2"}
    if model == "A2L2":  # interventions are on masked words
        quantities |= {"intervention slope", "random direction slope"}
    rows = {cell.row for cell in found if cell.table == "figure_dynamics" and not cell.row.endswith("error")}
    assert {row for row in rows if cells.has_model(row, model)} == {f"{model} {quantity}" for quantity in quantities}
    for quantity in quantities:
        steps = {cells.STEP.index(cell.column) for cell in found
                 if (cell.table, cell.row) == ("figure_dynamics", f"{model} {quantity}")}
        assert steps == {0, *kept_steps(40, 3), 40}, quantity
    last = found[cells.while_training(model, "loss above optimum", 40)]
    assert 0 < last < found[cells.while_training(model, "loss above optimum", 0)]
    assert cells.half_way(model, "loss above optimum") in found


def test_a_causal_model_is_asked_for_what_the_words_so_far_say(run):
    """Its spans have their probability given the words up to their end, those without a score none."""
    inputs = Inputs({stage: run[1] / stage for stage in STAGES[:-1]}, "none")
    grammar = inputs.pcfg()
    train = read_corpora(inputs, 12, 10, 5)[0][cells.TREEBANK.training.name]
    train = dataclasses.replace(train, scores=[None, *train.scores[1:]])
    scores = scored_so_far(grammar, train, Machine("cpu", 2)).scores
    assert scores[0] is None
    for words, spans in zip(train.sentences[1:], scores[1:], strict=True):
        so_far = list(incremental_posteriors(grammar, words))
        for j in range(1, len(words) + 1):
            assert spans[:j, j] == pytest.approx(so_far[j].spans[:j, j], abs=1e-9)


def test_the_loss_of_a_causal_model_is_that_of_the_stage_before(run):
    """The last point of the curve, and the table `next_word`, on the same 20 sentences of at most 12 words."""
    perplexity = {column: numbers(run, "incremental")[cells.next_word("C2L2", column)] for column in ("model", "exact")}
    found = numbers(run, "dynamics")
    expected = np.log(perplexity["model"] / perplexity["exact"])
    assert found[cells.while_training("C2L2", "loss above optimum", 40)] == pytest.approx(expected, rel=1e-6)


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
