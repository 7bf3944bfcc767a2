"""The exact distribution at masked words, and the distance of a model from it."""

import itertools

import numpy as np
import pytest

from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.mlm.evaluation import as_batch, mean_loss, predictions
from pcfg_artifact.mlm.exact_comparison import (
    BINS,
    Gap,
    MaskedSentence,
    bin_groups,
    circumstances,
    exact_predictions,
    masked_sentences,
    masked_word_groups,
    word_depths,
)
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.masking import masked_log_probs
from pcfg_artifact.parsing.masks import NAMED_MASKS
from pcfg_artifact.system.ragged import Ragged

EXACT = 1e-10  # float64 dynamic programme against sums of a few dozen products


@pytest.fixture
def sentences(tiny_grammar) -> Ragged:
    return sample_trees(tiny_grammar, 60, seed=4, max_length=8).tokens


@pytest.mark.parametrize("masks", NAMED_MASKS)
def test_exact_rows_are_distributions_and_agree_with_the_stage_marginals(tiny_grammar, sentences, masks):
    masking = NAMED_MASKS[masks]
    masked = masked_sentences(tiny_grammar, sentences, masking, seed=2, n=60, max_length=8)
    rows = list(exact_predictions(tiny_grammar, masked, masking))
    known = masked_log_probs(tiny_grammar, list(sentences.rows()), masking, seed=2)
    assert sum(len(s.positions) for s in masked) > 10
    for sentence, row, log_probs in zip(masked, rows, known, strict=True):
        assert row.shape == (len(sentence.positions), tiny_grammar.n_words)
        np.testing.assert_allclose(row.sum(axis=1), 1.0, rtol=0, atol=EXACT)
        at_target = row[np.arange(len(row)), sentence.words[sentence.positions]]
        np.testing.assert_allclose(np.log(at_target), log_probs, rtol=0, atol=EXACT)


@pytest.mark.parametrize("masks", NAMED_MASKS)
def test_exact_rows_are_bayes_rule_over_all_sentences(tiny_grammar, masks):
    """Every sentence of this length, times the probability that the masking process shows what is seen."""
    masking, n = NAMED_MASKS[masks], tiny_grammar.n_words
    seen, positions = np.array([0, -1, 1, 1]), np.array([1, 2])
    if masking.corruption == "mask":
        positions = np.array([1])
    candidates = np.array(list(itertools.product(range(n), repeat=4)))
    prior = np.exp([chart.log_prob for chart in inside_outside(tiny_grammar, list(candidates))])
    sentence = MaskedSentence(0, candidates[0], seen, positions)
    (rows,) = exact_predictions(tiny_grammar, [sentence], masking)
    for row, position in zip(rows, positions, strict=True):
        weight = prior.copy()
        for t, o in enumerate(seen):
            if o < 0:
                continue  # <mask> says nothing about the word
            is_same = candidates[:, t] == o
            if masking.corruption == "mask":
                weight *= is_same
            elif t == position:
                weight *= 0.1 * is_same + 0.1 / n
            else:
                weight *= (1 - masking.rate) * is_same + masking.rate * (0.1 * is_same + 0.1 / n)
        expected = np.bincount(candidates[:, position], weight, minlength=n)
        np.testing.assert_allclose(row, expected / expected.sum(), rtol=0, atol=EXACT)


def test_gap_of_the_optimum_itself_is_zero_and_of_another_model_is_its_divergence():
    exact = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    with np.errstate(divide="ignore"):
        itself = Gap.between(np.log(exact), exact, np.array([0, 2]))
    np.testing.assert_allclose(itself.divergence, 0, atol=1e-15)
    np.testing.assert_allclose(itself.model, itself.exact)
    assert itself.entropy[0] == pytest.approx(np.log(2))
    even = Gap.between(np.log(np.full((2, 3), 1 / 3)), exact, np.array([0, 2]))
    np.testing.assert_allclose(even.divergence, np.log(3) - itself.entropy)
    assert even.excess()[0] == pytest.approx(np.mean([np.log(3) - np.log(2), np.log(3) - np.log(2)]))
    impossible = Gap.between(np.log(np.full((1, 3), 1 / 3)), exact[:1], np.array([2]))
    assert impossible.exact[0] == np.inf


def test_predictions_one_by_one_equal_padded_batches(tiny_grammar, sentences):
    masked = masked_sentences(tiny_grammar, sentences, NAMED_MASKS["mask 0.40"], seed=0, n=60, max_length=8)
    config = build_config(parse_shape("A2L2"), n_words=tiny_grammar.n_words, width=16, max_length=10, dropout=0.1)
    model = build_model(config, 0).double()
    together = dict(predictions(model, masked, 100))
    alone = dict(predictions(model, masked, 1))
    assert together.keys() == alone.keys() == set(range(len(masked)))
    for s, row in together.items():
        np.testing.assert_allclose(row, alone[s], rtol=0, atol=1e-12)
    batches = [as_batch([s], [1]) for s in masked]
    targets = [together[k][np.arange(len(s.positions)), s.words[s.positions]] for k, s in enumerate(masked)]
    assert mean_loss(model, batches) == pytest.approx(-np.concatenate(targets).mean(), abs=1e-12)


def test_circumstances_and_groups_of_a_masked_word():
    sentence = MaskedSentence(0, np.arange(5), np.array([-1, -1, 2, 3, -1]), np.array([0, 1, 4]))
    depth = word_depths([(0, 5), (0, 2), (2, 5), (2, 4), (0, 1)], 5)
    assert depth.tolist() == [2, 2, 3, 3, 2]
    known = circumstances([sentence], [depth])
    assert known["masked neighbours"].tolist() == [1, 1, 0]
    assert known["place"].tolist() == [0, 1, 2]
    gap = Gap(*(np.zeros(3) for _ in range(4)))
    found = {(group, label): chosen.tolist()
             for group, label, chosen in bin_groups({**known, "entropy": gap.entropy}, BINS)}
    counts = {(metric.group, metric.bin): metric.n for metric in masked_word_groups(gap, known, table="masked_words")}
    assert [counts["place", place] for place in ("first", "inside", "last")] == [1, 1, 1]
    assert found["length", "1-5"] == [True, True, True]
    assert found["masked neighbours", "1+"] == [True, True, False]
    assert sum(np.array(chosen) for (group, _), chosen in found.items() if group == "entropy").tolist() == [1, 1, 1]
