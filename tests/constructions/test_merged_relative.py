"""The transformer of a merged grammar against the merged algorithm run exactly, with many heads and with few."""

import numpy as np
import pytest

from pcfg_artifact.approximation.algorithm import Approximation
from pcfg_artifact.approximation.merging import choose_classes, merge_symbols
from pcfg_artifact.approximation.scores import one_mask_probabilities
from pcfg_artifact.constructions.approximate_relative import ApproximateInsideOutside, MergedInsideOutside, merged_sizes
from pcfg_artifact.constructions.relative import RelativeInsideOutside
from pcfg_artifact.constructions.transformer import sizes
from pcfg_artifact.errors import UsageError
from pcfg_artifact.parsing.engine import inside_outside
from tests.approximation.small_treebank import GRAMMAR, TREES

TOLERANCE = 1e-12  # relative, every entry; measured 8e-16
L = 6
SENTENCES = [tree.words() for tree in TREES] + [["park", "sees"], ["now", "now", "and"], ["zebra"], ["the", "zebra"]]


@pytest.mark.parametrize("backend", ["dense", "structured"])
@pytest.mark.parametrize("n_heads", [None, 2, 3])
def test_charts_equal_inside_outside_whatever_the_number_of_heads(
        random_grammar, textbook, random_sentence, relative_error, n_heads, backend):
    for seed in range(3):
        grammar = random_grammar(seed, root="distribution")
        model = MergedInsideOutside(grammar, L, n_heads, backend=backend)
        sentences = [random_sentence(grammar, n, seed) for n in range(1, L + 1)]
        for sentence, charts in zip(sentences, model.read_charts(model(sentences)), strict=True):
            for found, expected in zip(charts, textbook(grammar, sentence), strict=True):
                assert relative_error(found, expected) <= TOLERANCE


@pytest.mark.parametrize("smoothing", [0.0, 1e-4])
@pytest.mark.parametrize("n_heads", [None, 2])
def test_the_merged_algorithm_and_its_transformer_agree(relative_error, smoothing, n_heads):
    for n_interminals, n_preterminals in ((2, 3), (3, 5), (GRAMMAR.n_interminals, GRAMMAR.n_preterminals)):
        merged = merge_symbols(GRAMMAR, choose_classes(GRAMMAR, n_interminals, n_preterminals), smoothing)
        model, algorithm = MergedInsideOutside(merged, 10, n_heads), Approximation(merged)
        embeddings = model(SENTENCES)
        exact = inside_outside(merged, SENTENCES, outside="full")
        rows = zip(SENTENCES, embeddings, model.read_charts(embeddings), model.read_marginals(embeddings), exact,
                   algorithm.span_scores(SENTENCES), strict=True)
        for sentence, one, (inside, outside), marginals, chart, scores in rows:
            assert relative_error(inside, np.exp(chart.log_inside)) <= TOLERANCE
            assert relative_error(outside, np.exp(chart.log_outside)) <= TOLERANCE
            possible = chart.log_prob > -np.inf
            assert possible or smoothing == 0.0  # nothing is impossible in a smoothed grammar, unknown words included
            if possible and len(sentence) > 1:
                wide = np.triu(np.ones_like(scores, bool), 2)
                np.testing.assert_allclose(marginals.max(axis=-1)[wide], scores[wide], rtol=1e-11)
            known = [merged.word_index.get(word, -1) for word in sentence]
            if possible and min(known) >= 0:
                predicted = model.word_distributions(one)[np.arange(len(sentence)), known]
                np.testing.assert_allclose(predicted, one_mask_probabilities(algorithm, [sentence]), rtol=1e-11)


def test_dropped_symbols_lose_sentences_that_merged_ones_keep_with_no_more_heads():
    merged = merge_symbols(GRAMMAR, choose_classes(GRAMMAR, 2, 3), 1e-4)
    kept, dropped = MergedInsideOutside(merged, 10), ApproximateInsideOutside(GRAMMAR, 10, 2, 3, rank=None)
    assert kept.n_heads == dropped.n_heads == 2
    assert kept.embedding_dim < dropped.embedding_dim  # leaves are of classes too
    has_tree = {name: [bool(marginals.any()) for marginals in model.read_marginals(model(SENTENCES[:5]))]
                for name, model in (("kept", kept), ("dropped", dropped))}
    assert all(has_tree["kept"])
    assert not all(has_tree["dropped"])


@pytest.mark.parametrize("n_heads", [2, 3, 4, 7, 50])
@pytest.mark.parametrize("max_length", [2, 5])
def test_sizes_are_those_of_the_formula_and_below_those_of_theorem_3_2(random_grammar, n_heads, max_length):
    grammar = random_grammar(0)
    model = MergedInsideOutside(grammar, max_length, n_heads)
    assert sizes(model) == merged_sizes(4, 5, max_length, n_heads)
    assert model.embedding_dim < RelativeInsideOutside(grammar, max_length).embedding_dim


def test_the_papers_numbers_of_symbols_take_20_heads_and_40L_plus_51_dimensions():
    assert merged_sizes(20, 45, 25, 20) == {"layers": 51, "heads": 20, "dimensions": 1051}


def test_a_transformer_for_single_words_reads_the_root_off_the_word(random_grammar, textbook, relative_error):
    grammar = random_grammar(3, root="distribution")
    model = MergedInsideOutside(grammar, 1)
    for word in grammar.words:
        for found, expected in zip(model.read_charts(model([word])), textbook(grammar, [word]), strict=True):
            assert relative_error(found, expected) <= TOLERANCE


def test_one_head_is_refused(random_grammar):
    with pytest.raises(UsageError, match="at least 2"):
        MergedInsideOutside(random_grammar(0), 3, 1)
