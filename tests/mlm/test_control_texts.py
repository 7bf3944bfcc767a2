"""Control texts: shuffled sentences keep their words; bigram text has the grammar's own pairs of neighbours."""

from itertools import pairwise

import numpy as np
import pytest

from pcfg_artifact.grammar.expectation import expected_length
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.mlm.control_texts import BigramModel, shuffled
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.random_streams import stream
from tests.finite_grammars import finite_grammar, sentences


def neighbours(grammar: PCFG) -> np.ndarray:
    """(V + 1, V + 1) expected pairs of neighbours in a sentence; V is the edge."""
    pairs = np.zeros((grammar.n_words + 1,) * 2)
    for words, p in sentences(grammar).items():
        for pair in pairwise((grammar.n_words, *words, grammar.n_words)):
            pairs[pair] += p
    return pairs


def transitions(model: BigramModel, n_words: int) -> np.ndarray:
    """(V + 1, V + 1) probability of the next word, read off the tables that sentences are drawn from."""
    def rows(choices, n, width):
        table = np.zeros((n, width))
        for row in range(n):
            entries = slice(choices.first[row], choices.first[row + 1])
            table[row, choices.value[entries]] = np.diff(choices.cumulative[entries], prepend=row)
        return table

    n_preterminals = len(model.word.first) - 1
    following = rows(model.following, n_preterminals + 1, n_preterminals + 1)
    emitted = np.zeros((n_preterminals + 1, n_words + 1))
    emitted[:-1, :-1] = rows(model.word, n_preterminals, n_words)
    emitted[-1, -1] = 1.0
    of_word = np.zeros((n_words + 1, n_preterminals + 1))
    of_word[:-1, :-1] = rows(model.preterminal, n_words, n_preterminals)
    of_word[-1, -1] = 1.0
    return of_word @ following @ emitted


@pytest.mark.parametrize("seed", range(12))
def test_every_pair_of_neighbours_is_as_likely_as_over_all_sentences_of_the_grammar(seed):
    grammar = finite_grammar(seed)
    pairs = neighbours(grammar)
    is_seen = pairs.sum(axis=1) > 0
    expected = pairs[is_seen] / pairs[is_seen].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(transitions(BigramModel.of(grammar), grammar.n_words)[is_seen], expected, atol=1e-12)


def test_bigram_text_has_the_pairs_of_sampled_text_where_the_grammar_is_recursive():
    grammar = PCFG.from_rules(
        root={"S": 1.0},
        binary=[("S", "NP", "VP", 0.8), ("S", "S", "CS", 0.2), ("CS", "and", "S", 1.0), ("NP", "the", "N", 0.7),
                ("NP", "NP", "PP", 0.3), ("PP", "of", "NP", 1.0), ("VP", "V", "NP", 1.0)],
        lexical=[("N", "dog", 0.6), ("N", "cat", 0.4), ("V", "saw", 1.0), ("the", "the", 1.0), ("of", "of", 1.0),
                 ("and", "and", 1.0)])
    n, v = 40_000, grammar.n_words
    drawn = BigramModel.of(grammar).draw(n, np.uint16, stream(0, "test"))
    assert drawn.n_rows == n
    assert drawn.lengths.min() >= 1
    assert drawn.lengths.mean() == pytest.approx(expected_length(grammar), rel=0.03)
    counts = []
    for text in (drawn, sample_trees(grammar, n, 1).tokens):
        flat = np.full(len(text.values) + n + 1, v)
        flat[np.arange(len(text.values)) + 1 + np.repeat(np.arange(n), text.lengths)] = text.values
        pairs = np.zeros((v + 1, v + 1))
        np.add.at(pairs, (flat[:-1], flat[1:]), 1 / n)
        counts.append(pairs)
    np.testing.assert_allclose(counts[0], counts[1], atol=0.03)
    assert ((counts[0] > 0) == (counts[1] > 0)).all()


def test_shuffled_sentences_hold_the_same_words_in_another_order():
    rows = [np.arange(k, dtype=np.uint16) for k in (1, 7, 30, 2)]
    text = Ragged.from_rows(rows, np.uint16)
    found = shuffled(text, stream(3, "test"))
    assert [sorted(row) for row in found.rows()] == [list(row) for row in rows]
    assert found.values.dtype == text.values.dtype
    assert not np.array_equal(found.row(2), rows[2])
    places = np.stack([shuffled(Ragged.from_rows([np.arange(4)] * 6000), stream(k, "test")).values.reshape(-1, 4)
                       for k in range(2)])
    share = np.stack([(places.reshape(-1, 4) == word).mean(axis=0) for word in range(4)])
    np.testing.assert_allclose(share, 0.25, atol=0.02)  # every word in every place equally often
