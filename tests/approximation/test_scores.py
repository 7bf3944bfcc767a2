"""Scores of approximations: hand-computed numbers, and predictions against the exact masked-word distribution."""

import numpy as np
import pytest

from pcfg_artifact.approximation.algorithm import Approximation
from pcfg_artifact.approximation.low_rank import approximate_charts
from pcfg_artifact.approximation.scores import (
    Trial,
    costs,
    one_mask_probabilities,
    parsing_scores,
    prediction_scores,
    unigram_probabilities,
)
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.parsing.decoding import labelled_recall
from pcfg_artifact.parsing.engine import EngineOptions, inside_outside
from pcfg_artifact.parsing.masking import masked_word_distribution
from pcfg_artifact.treebank.brackets import parse_trees

GRAMMAR = PCFG.from_rules(
    root={"S": 0.9, "NP": 0.1},
    binary=[("S", "NP", "VP", 0.8), ("S", "NN", "VP", 0.2), ("NP", "DT", "NN", 0.6), ("NP", "NP", "PP", 0.4),
            ("VP", "VBZ", "NP", 0.5), ("VP", "VP", "PP", 0.2), ("VP", "VBZ", "NN", 0.3), ("PP", "IN", "NP", 1.0)],
    lexical=[("DT", "the", 0.7), ("DT", "a", 0.3), ("NN", "dog", 0.5), ("NN", "park", 0.5), ("VBZ", "sees", 0.9),
             ("VBZ", "park", 0.1), ("IN", "in", 1.0)],
    symbol_counts={"S": 40, "NP": 100, "VP": 60, "PP": 30, "DT": 90, "NN": 120, "VBZ": 50, "IN": 30})
S, NP, VP, PP, D, N, V, P = range(8)
DRAWN = list(sample_trees(GRAMMAR, 6, 1, max_length=12).tokens.rows())
TREES = parse_trees("""(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN park))))
                       (S (NP (NP (DT the) (NN dog)) (PP (IN in) (NP (DT the) (NN park)))) (VP (VBZ sees) (NN dog)))
                       (NP (DT the) (NN park))""", "trees")[0]


def named(scores: list[Metric]) -> dict[tuple[str, str, str], Metric]:
    """By measure, group and convention."""
    return {(score.metric, score.group, score.convention): score for score in scores}


FAILED, UNDEFINED, PERPLEXITY = ("failed", "", ""), ("undefined", "", ""), ("perplexity", "", "")
F1, KIM, PARSED_F1 = ("sentence_f1", "", "PB"), ("corpus_f1", "", "KIM"), ("sentence_f1", "parsed", "PB")
DEFINED, EXACT_DEFINED = ("perplexity", "defined", ""), ("exact_perplexity", "defined", "")


def test_perplexity_backs_off_to_unigrams_where_the_model_is_silent():
    scores = named(prediction_scores(np.array([0.5, 0.0, 0.25]), np.array([0.5, 0.5, 0.5]),
                                     np.array([0.1, 0.125, 0.1])))
    assert scores[PERPLEXITY].value == pytest.approx((0.5 * 0.125 * 0.25) ** (-1 / 3))
    assert scores[UNDEFINED].value == pytest.approx(1 / 3)
    assert (scores[DEFINED].value, scores[DEFINED].n) == (pytest.approx(np.sqrt(8)), 2)
    assert scores[EXACT_DEFINED].value == pytest.approx(2.0)


def test_costs_are_what_is_lost_in_percent_of_the_exact_value():
    def scores(f1, perplexity):
        return [Metric(table="approximation", convention="PB", metric="sentence_f1", value=f1, n=9, unit="percent"),
                Metric(table="approximation", metric="perplexity", value=perplexity, n=7, unit="perplexity"),
                Metric(table="approximation", metric="undefined", value=0.1, n=7, unit="fraction"),
                Metric(table="approximation", convention="KIM", metric="sentence_f1", value=1, n=9, unit="percent")]

    found = costs(scores(80.0, 50.0), scores(60.0, 55.0))
    assert [(cost.table, cost.metric, cost.n, cost.unit) for cost in found] == [
        ("approximation_cost", "sentence_f1", 9, "percent"), ("approximation_cost", "perplexity", 7, "percent")]
    assert [cost.value for cost in found] == pytest.approx([25.0, 10.0])
    assert not costs([], scores(60.0, 55.0))


def test_unigram_probabilities_are_relative_frequencies():
    found = unigram_probabilities(GRAMMAR, [["the", "park"], ["in"]])
    assert found == pytest.approx(np.array([63, 65, 30]) / 290)


def test_exact_predictions_equal_the_masked_word_distribution():
    found = one_mask_probabilities(Approximation(GRAMMAR), DRAWN)
    expected = [masked_word_distribution(GRAMMAR, sentence, [t], EngineOptions(backend="reference"))[0, word]
                for sentence in DRAWN for t, word in enumerate(sentence)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("rank", [None, 1])
def test_restricted_predictions_follow_the_formula(rank):
    interminals, preterminals = np.array([NP, S, VP]), np.array([N, D])
    transforms = None if rank is None else {2: np.array([[0.6, 0.0, 0.8]]), 4: np.array([[0.8, 0.6, 0.0]])}
    model = Approximation(GRAMMAR, interminals, preterminals, transforms)
    found = one_mask_probabilities(model, DRAWN)
    emission = np.zeros((GRAMMAR.n_nonterminals, GRAMMAR.n_words))
    emission[tuple(GRAMMAR.lexical.T)] = GRAMMAR.lexical_prob
    expected = []
    for sentence in DRAWN:
        _, outside = approximate_charts(GRAMMAR, sentence, interminals, preterminals, transforms)
        for t, word in enumerate(sentence):
            beta = outside[t, t + 1, preterminals]
            expected.append(emission[preterminals, word] @ beta / beta.sum() if beta.sum() > 0 else 0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert 0 < (found == 0).sum() < len(found)  # verbs and prepositions are outside P~


def test_failed_sentences_become_right_branching_and_are_counted():
    silent = [np.zeros((len(tree.words()) + 1,) * 2) for tree in TREES]
    scores = named(parsing_scores(TREES, silent))
    right = [[(i, len(tree.words())) for i in range(len(tree.words()))] for tree in TREES]
    alone = named(parsing_scores(TREES, [np.array([[float((i, j) in spans) for j in range(len(spans) + 1)]
                                                   for i in range(len(spans) + 1)]) for spans in right]))
    assert scores[FAILED].value == 1.0
    assert scores[F1] == alone[F1]
    assert scores[KIM] == alone[KIM]
    assert alone[FAILED].value == 0.0
    assert scores[PARSED_F1].n == 0


def test_parsed_only_scores_leave_failed_sentences_out():
    charts = inside_outside(GRAMMAR, [tree.words() for tree in TREES])
    spans = [chart.span_scores() for chart in charts]
    assert named(parsing_scores(TREES, spans))[F1].value == pytest.approx(100.0)
    spans[1] = np.zeros_like(spans[1])
    scores = named(parsing_scores(TREES, spans))
    assert (scores[FAILED].value, scores[FAILED].n) == (pytest.approx(1 / 3), 3)
    assert scores[F1].value < 100.0
    assert scores[PARSED_F1].value == pytest.approx(100.0)


def test_trial_leaves_out_scores_that_rest_on_nothing():
    trial = Trial(GRAMMAR, TREES, DRAWN)
    nothing = named(trial.scores(Approximation(GRAMMAR, np.array([PP]), np.array([N]))))
    assert nothing[FAILED].value == 1.0
    assert nothing[UNDEFINED].value == 1.0
    assert not {PARSED_F1, DEFINED} & nothing.keys()
    exact = named(trial.scores(Approximation(GRAMMAR)))
    assert exact[PERPLEXITY].value == exact[EXACT_DEFINED].value
    assert nothing[PERPLEXITY].value > exact[PERPLEXITY].value


@pytest.mark.parametrize("transforms", [None, {2: np.array([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])}])
def test_threads_and_batches_change_nothing(transforms):
    model = Approximation(GRAMMAR, np.array([NP, VP, S]), np.array([N, D, V]), transforms)
    one = list(model.span_scores(DRAWN, EngineOptions(n_threads=1)))
    for n_threads in (2, 3):
        found = model.span_scores(DRAWN, EngineOptions(n_threads=n_threads))
        assert all(np.array_equal(a, b) for a, b in zip(one, found, strict=True))
    alone = [next(iter(model.span_scores([sentence]))) for sentence in DRAWN]
    assert all(np.array_equal(a, b) for a, b in zip(one, alone, strict=True))
    np.testing.assert_array_equal(*(one_mask_probabilities(model, DRAWN, EngineOptions(n_threads=n)) for n in (1, 3)))


def test_words_known_to_few_preterminals_only():
    model = Approximation(GRAMMAR, None, np.array([D, N, V]), few_leaves=True)
    with_preposition, without = TREES[1].words(), TREES[0].words()
    scores = list(model.span_scores([with_preposition, without]))
    assert not np.triu(scores[0], 2).any()
    chart = inside_outside(GRAMMAR, [without])[0]
    np.testing.assert_allclose(scores[1], chart.span_scores())
    assert labelled_recall(chart)
