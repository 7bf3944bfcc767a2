"""What neighbouring words say of one of them, against every sentence of finite grammars."""

from collections import Counter

import numpy as np
import pytest

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.leaves import emissions
from pcfg_artifact.parsing.masking import masked_word_distribution
from pcfg_artifact.parsing.prefix.infix import infix_outside
from tests.finite_grammars import finite_grammar, sentences

TOLERANCE = 1e-12  # some hundred additions


def emission_table(grammar: PCFG) -> np.ndarray:
    """(P, V)"""
    table = np.zeros((grammar.n_preterminals, grammar.n_words))
    head, word = grammar.lexical.T
    table[head - grammar.n_interminals, word] = grammar.lexical_prob
    return table


def expected_words(language: Counter, n_words: int, seen: np.ndarray, position: int, begins: bool, ends: bool
                   ) -> np.ndarray:
    """(V,) expected number of places with these surroundings that hold each word; seen: word ids, -1 for any."""
    found = np.zeros(n_words)
    for words, p in language.items():
        for start in range(len(words) - len(seen) + 1):
            if (begins and start) or (ends and start + len(seen) < len(words)):
                continue
            fits = [s < 0 or k == position or words[start + k] == s for k, s in enumerate(seen)]
            found[words[start + position]] += p * all(fits)
    return found


def word_weights(grammar: PCFG, seen: np.ndarray, position: int, begins: bool, ends: bool) -> np.ndarray:
    leaves = emissions(grammar).of(np.asarray(seen))
    leaves[np.asarray(seen) < 0] = 1.0
    return infix_outside(grammar, leaves, position, begins=begins, ends=ends) @ emission_table(grammar)


@pytest.mark.parametrize("seed", range(10))
def test_expected_words_are_those_of_all_sentences(seed):
    grammar, rng = finite_grammar(seed), np.random.default_rng(seed)
    language, n_possible = sentences(grammar), 0
    for begins in (False, True):
        for ends in (False, True):
            for m in range(1, 6):
                seen = rng.integers(-1, grammar.n_words, m)
                position = int(rng.integers(m))
                expected = expected_words(language, grammar.n_words, seen, position, begins, ends)
                np.testing.assert_allclose(word_weights(grammar, seen, position, begins, ends), expected,
                                           atol=TOLERANCE)
                n_possible += expected.any()
    assert n_possible > 5


def test_between_both_ends_of_the_sentence_it_is_exact_inference(random_grammar):
    for seed in range(6):
        grammar, rng = random_grammar(seed), np.random.default_rng(seed)
        for length in (1, 2, 4, 6):
            words = rng.integers(grammar.n_words, size=length)
            position = int(rng.integers(length))
            expected = masked_word_distribution(grammar, words, [position])[0]
            try:
                found = word_weights(grammar, words, position, True, True)
            except GrammarError:
                continue
            if expected.any():
                np.testing.assert_allclose(found / found.sum(), expected, atol=TOLERANCE)
            else:
                assert not found.any()


def test_a_recursive_grammar_by_hand():
    """S -> a S | b: a^n b with probability 2^-(n+1); an `a` follows an `a` in the mean 1/2 times, a `b` 1/2 times."""
    grammar = PCFG.from_rules(root={"S": 0.5, "B": 0.5}, binary=[("S", "A", "S", 0.5), ("S", "A", "B", 0.5)],
                              lexical=[("A", "a", 1.0), ("B", "b", 1.0)])
    a, b = grammar.words.index("a"), grammar.words.index("b")
    after_a = word_weights(grammar, np.array([a, -1]), 1, False, False)
    assert after_a[a] == pytest.approx(0.5)
    assert after_a[b] == pytest.approx(0.5)
    assert word_weights(grammar, np.array([-1]), 0, False, False).sum() == pytest.approx(2.0)  # words of a sentence
    first = word_weights(grammar, np.array([-1, a]), 0, True, False)
    assert first[a] == pytest.approx(0.25)
    assert first[b] == 0.0


def test_a_grammar_of_endless_sentences_is_refused():
    grammar = PCFG.from_rules(root={"S": 1.0}, binary=[("S", "S", "S", 0.6), ("S", "A", "A", 0.4)],
                              lexical=[("A", "a", 1.0)])
    with pytest.raises(GrammarError, match="no finite expected length"):
        infix_outside(grammar, np.ones((3, 1)), 1, begins=False, ends=False)
