"""Merged grammars: counts, re-estimation against relabelled trees, the exchange, probability for every sentence."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcfg_artifact.approximation.merging import EXPECTED_TREES, choose_classes, merge_symbols, rule_counts
from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.expectation import expected_counts
from pcfg_artifact.grammar.learning import pcfg_from_counts
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.treebank.binarise import binarise
from tests.approximation.small_treebank import GRAMMAR, TREES


def objective(grammar: PCFG, classes: np.ndarray) -> float:
    """J of the module's docstring, and the roots, in plain loops."""
    counts = rule_counts(grammar)
    tensor, sizes, roots = Counter(), Counter(), Counter()
    for rule, count in zip(grammar.binary, counts.binary, strict=True):
        tensor[tuple(classes[rule])] += count
    for a, count in enumerate(counts.symbols):
        sizes[classes[a]] += count
        roots[classes[a]] += counts.root[a]
    total = sum(count * np.log(count / sizes[x]) for (x, _, _), count in tensor.items())
    total += sum(count * np.log(count / sizes[classes[a]]) for a, count in enumerate(counts.symbols))
    return total + sum(count * np.log(count) for count in roots.values() if count > 0.5)


def test_counts_come_back_from_probabilities():
    counts = rule_counts(GRAMMAR)
    assert counts.root.sum() == pytest.approx(len(TREES))
    np.testing.assert_allclose(counts.binary, np.round(counts.binary), atol=1e-9)
    np.testing.assert_allclose(counts.lexical, np.round(counts.lexical), atol=1e-9)
    assert counts.lexical.sum() == pytest.approx(sum(len(tree.words()) for tree in TREES))


def test_one_class_per_symbol_without_smoothing_is_the_grammar_itself():
    merged = merge_symbols(GRAMMAR, np.arange(GRAMMAR.n_nonterminals), 0.0)
    assert merged.nonterminals == GRAMMAR.nonterminals
    np.testing.assert_array_equal(merged.binary, GRAMMAR.binary)
    np.testing.assert_allclose(merged.binary_prob, GRAMMAR.binary_prob)
    np.testing.assert_allclose(merged.lexical_prob, GRAMMAR.lexical_prob)
    np.testing.assert_allclose(merged.root, GRAMMAR.root)


def test_merged_grammar_equals_the_one_learned_from_relabelled_trees():
    n_inner = 3
    classes = np.concatenate([np.arange(GRAMMAR.n_interminals) % n_inner,
                              n_inner + np.arange(GRAMMAR.n_preterminals) % 4])
    merged = merge_symbols(GRAMMAR, classes, 0.0)
    name_of = {a: merged.nonterminals[classes[x]] for x, a in enumerate(GRAMMAR.nonterminals)}
    roots, binary, lexical = Counter(), Counter(), Counter()
    for tree in TREES:
        root = binarise(tree, "novm")
        roots[name_of[root.label]] += 1
        encoded = iter(GRAMMAR.encode(tree.words()))
        for node in root.preorder():
            if node.is_preterminal:
                lexical[name_of[node.label], GRAMMAR.words[next(encoded)]] += 1
            else:
                binary[(name_of[node.label], *(name_of[child.label] for child in node.children))] += 1
    expected = pcfg_from_counts(roots, binary, lexical)

    def rules(grammar):
        names = grammar.nonterminals
        return ({(names[a], names[b], names[c]): p for (a, b, c), p in zip(grammar.binary, grammar.binary_prob,
                                                                             strict=True)}
                | {(names[a], grammar.words[w]): p for (a, w), p in zip(grammar.lexical, grammar.lexical_prob,
                                                                         strict=True)}
                | {names[a]: p for a, p in enumerate(grammar.root) if p > 0})

    assert rules(merged) == pytest.approx(rules(expected))


def test_no_single_move_raises_the_objective_of_the_chosen_classes():
    classes = choose_classes(GRAMMAR, 4, 3)
    assert set(classes[:GRAMMAR.n_interminals]) <= set(range(4))
    assert set(classes[GRAMMAR.n_interminals:]) <= {4, 5, 6}
    best = objective(GRAMMAR, classes)
    for a in range(GRAMMAR.n_nonterminals):
        for target in range(4) if a < GRAMMAR.n_interminals else range(4, 7):
            moved = classes.copy()
            moved[a] = target
            assert objective(GRAMMAR, moved) <= best + 1e-6


def test_exchange_is_better_than_sending_all_rare_symbols_to_the_most_frequent():
    start = np.concatenate([np.minimum(np.arange(GRAMMAR.n_interminals), 4) % 4,
                            4 + np.minimum(np.arange(GRAMMAR.n_preterminals), 3) % 3])
    assert objective(GRAMMAR, choose_classes(GRAMMAR, 4, 3)) > objective(GRAMMAR, start)


@settings(max_examples=15, deadline=None)
@given(words=st.lists(st.sampled_from(["the", "dog", "zzz", "Running-9", "in", ".", "cats"]), min_size=1, max_size=9))
def test_every_sentence_has_probability(words):
    merged = merge_symbols(GRAMMAR, choose_classes(GRAMMAR, 3, 4), 1e-4)
    assert inside_outside(merged, [words])[0].log_prob > -np.inf


def test_without_smoothing_some_sentence_has_none():
    merged = merge_symbols(GRAMMAR, choose_classes(GRAMMAR, 3, 4), 0.0)
    assert inside_outside(merged, [["in", "in", "."]])[0].log_prob == -np.inf


def test_what_cannot_be_merged_is_refused():
    with pytest.raises(UsageError, match="99 in-terminal classes were asked for"):
        choose_classes(GRAMMAR, 99, 3)
    with pytest.raises(UsageError, match="smoothing is 1"):
        merge_symbols(GRAMMAR, choose_classes(GRAMMAR, 3, 3), 1.0)


def test_a_grammar_without_counts_is_merged_as_its_expected_counts_say():
    drawn = expected_counts(GRAMMAR)
    assert np.allclose(rule_counts(replace(GRAMMAR, symbol_counts=None)).symbols / EXPECTED_TREES, drawn, rtol=1e-12)
    counted = replace(GRAMMAR, symbol_counts=drawn * 1e5)
    for smoothing in (0.0, 1e-4):
        classes = choose_classes(counted, 3, 4)
        written = merge_symbols(replace(GRAMMAR, symbol_counts=None), classes, smoothing)
        learned = merge_symbols(counted, classes, smoothing)
        assert np.allclose(written.binary_prob, learned.binary_prob, rtol=1e-9)
