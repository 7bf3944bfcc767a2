"""The stage marginals on a small world: every number of it found again by the slow way."""

import numpy as np
import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.parsing.charts import cell_bounds
from pcfg_artifact.parsing.decoding import labelled_recall
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.masking import masked_word_distribution
from pcfg_artifact.parsing.scoring import span_f1
from pcfg_artifact.run.stage_folder import Folder
from pcfg_artifact.treebank.brackets import parse_trees

SIZES = {"sample.n_pretraining": 10, "sample.n_validation": 12, "sample.n_probe_train": 8, "sample.n_probe_test": 8,
         "sample.max_length": 12, "marginals.max_length": 8, "marginals.n_train": 15, "marginals.n_masked": 5,
         "marginals.mask_max_length": 10}
MASKED = ["marginals.n_masked=3", "marginals.mask_max_length=10"]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    root = tmp_path_factory.mktemp("marginals")
    noun_phrases = ["(NP (DT the) (NN dog))", "(NP (NNS cats))",
                    "(NP (DT a) (JJ big) (NN dog) (PP (IN in) (NP (NNS parks))))"]
    trees = [f"(S {subject} (VP (VBP see) {thing}) (. .))" for subject in noun_phrases for thing in noun_phrases] * 30
    (root / "trees.mrg").write_text("\n".join(trees))
    arguments = ["--treebank", str(root / "trees.mrg"), "--out", str(root / "out"), "--to", "marginals"]
    assert main([*arguments, *(f"--set={key}={value}" for key, value in SIZES.items())]) == 0
    return root / "out"


def test_span_scores_trees_and_log_probabilities_are_those_of_the_reference(out):
    folder, grammar = Folder(out / "marginals"), PCFG.load(out / "grammar" / "vm")
    trees = parse_trees(Folder(out / "grammar").text("test.trees"), "test")[0]
    scores, spans = folder.ragged("test/span_scores"), folder.ragged("test/spans")
    attempts, log_probs = folder.array("test/attempts"), folder.array("test/log_probs")
    assert scores.n_rows == len(trees)
    for s, tree in enumerate(trees):
        words = tree.words()
        if len(words) > SIZES["marginals.max_length"]:
            assert (len(scores.row(s)), attempts[s]) == (0, 0)
            assert np.isnan(log_probs[s])
            continue
        chart = inside_outside(grammar, [words], backend="reference")[0]
        np.testing.assert_allclose(scores.row(s), chart.span_scores()[cell_bounds(len(words))], atol=1e-6)
        assert spans.row(s).reshape(-1, 2).tolist() == [list(span) for span in labelled_recall(chart)]
        assert log_probs[s] == pytest.approx(chart.log_prob)
    assert (attempts == 0).any()
    numbers = Numbers(folder.metrics())
    chosen = [s for s in range(len(trees)) if attempts[s]]
    f1 = span_f1([trees[s] for s in chosen], [list(map(tuple, spans.row(s).reshape(-1, 2).tolist())) for s in chosen])
    of_treebank = {"table": "parsers", "setting": "treebank"}
    found, = numbers.select({**of_treebank, "model": "IO", "convention": "PB", "metric": "sentence_f1"})
    ceiling, = numbers.select({**of_treebank, "model": "ceiling", "convention": "PB", "metric": "corpus_f1"})
    too_long, = numbers.select({**of_treebank, "model": "IO", "metric": "too_long"})
    assert found.value == pytest.approx(f1.sentence)
    assert ceiling.value == 100.0
    assert too_long.value == (attempts == 0).sum()


def test_training_sentences_beyond_the_limit_have_empty_rows(out):
    lengths = Folder(out / "marginals").ragged("train/span_scores").lengths
    assert (lengths > 0).sum() == SIZES["marginals.n_train"]
    assert len(lengths) == len(parse_trees(Folder(out / "grammar").text("train.trees"), "train")[0])


def test_the_one_mask_optimum_is_the_perplexity_of_single_masks(out):
    grammar = PCFG.load(out / "grammar" / "vm")
    validation = Folder(out / "sample").ragged("validation/tokens")
    short = [row for row in validation.rows() if len(row) <= SIZES["marginals.mask_max_length"]]
    chosen = short[:SIZES["marginals.n_masked"]]
    log_probs = [np.log(masked_word_distribution(grammar, row.astype(int), [t])[0, row[t]])
                 for row in chosen for t in range(len(row))]
    found = {(metric.model, metric.input): metric for metric in Folder(out / "marginals").metrics()
             if metric.table == "optimum"}
    optimum = found["exact", "one mask"]
    assert optimum.value == pytest.approx(np.exp(-np.mean(log_probs)))
    assert optimum.n == len(log_probs)
    assert found.keys() == {("unigram", ""), *(("exact", masks) for masks in
                                               ("one mask", "mask 0.15", "mask 0.40", "corrupt 0.15"))}


def test_only_tables_of_the_stage_are_written(out):
    assert {metric.table for metric in Folder(out / "marginals").metrics()} == {"parsers", "optimum"}
