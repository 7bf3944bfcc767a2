"""Charts, trees and masked words under constraints, against enumeration of the trees that keep them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcfg_artifact.errors import UsageError
from pcfg_artifact.parsing.decoding import labelled_recall, viterbi_trees
from pcfg_artifact.parsing.engine import EngineOptions, inside_outside, log_probabilities
from pcfg_artifact.parsing.leaves import sentence_leaves
from pcfg_artifact.parsing.masking import masked_word_distribution

TIGHT = 1e-9


def some_constraints(grammar, length: int, rng) -> dict:
    """One to three constraints, with labels or without, of any width; they may well contradict each other."""
    constraints = {}
    for _ in range(rng.integers(1, 4)):
        i = int(rng.integers(length))
        j = int(rng.integers(i + 1, length + 1))
        label = rng.integers(3) == 0
        span = (i, j, grammar.nonterminals[rng.integers(grammar.n_nonterminals)]) if label else (i, j)
        constraints[span] = bool(rng.integers(2))
    return constraints


def keeps(grammar, nodes, constraints: dict) -> bool:
    """Whether a tree, by its nodes, is as the constraints say: read off the tree, without crossing spans."""
    spans, labelled = {(i, j) for _, i, j in nodes}, {(i, j, grammar.nonterminals[a]) for a, i, j in nodes}
    return all((span in (spans if len(span) == 2 else labelled)) == wanted for span, wanted in constraints.items())


def some_sentence(grammar, rng, length: int) -> list[str]:
    return [f"w{w}" for w in rng.integers(grammar.n_words, size=length)]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), density=st.sampled_from([0.15, 0.4, 0.9]))
def test_constrained_charts_and_trees_equal_enumeration(random_grammar, is_left_out, all_trees, engine, seed, density):
    """A batch of several lengths, some sentences without constraints: log probability, marginals, the best tree."""
    if is_left_out(engine, seed):
        return
    rng = np.random.default_rng(seed)
    grammar = random_grammar(seed, 2, 2, 2, density)
    sentences = [some_sentence(grammar, rng, length) for length in (4, 1, 5, 2, 3)]
    constraints = [some_constraints(grammar, len(words), rng) if rng.random() < 0.8 else {} for words in sentences]
    options = EngineOptions(backend=engine)
    charts = inside_outside(grammar, sentences, backend=engine, constraints=constraints)
    totals = list(log_probabilities(grammar, sentences, options, constraints))
    best = list(viterbi_trees(grammar, sentences, options, constraints))
    for words, wanted, chart, total, (log_best, tree) in zip(sentences, constraints, charts, totals, best, strict=True):
        trees = [(p, nodes) for p, nodes in all_trees(grammar, sentence_leaves(grammar, words))
                 if keeps(grammar, nodes, wanted)]
        mass = sum(p for p, _ in trees)
        assert np.exp(chart.log_prob) == pytest.approx(mass, rel=TIGHT, abs=0)
        assert np.exp(total) == pytest.approx(mass, rel=TIGHT, abs=0)
        assert np.exp(log_best) == pytest.approx(max((p for p, _ in trees), default=0.0), rel=TIGHT, abs=0)
        assert (tree is None) == (not trees)
        expected = np.zeros_like(chart.marginals)
        for p, nodes in trees:
            for a, i, j in nodes:
                expected[i, j, a] += p / mass
        np.testing.assert_allclose(chart.marginals, expected, rtol=TIGHT, atol=1e-15)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), density=st.sampled_from([0.3, 0.9]))
def test_constrained_masked_words_equal_enumeration(random_grammar, is_left_out, all_trees, engine, seed, density):
    """Every word at the masked place, each with its trees that keep the constraints."""
    if is_left_out(engine, seed):
        return
    rng = np.random.default_rng(seed)
    grammar = random_grammar(seed, 2, 2, 3, density)
    words = some_sentence(grammar, rng, 4)
    constraints, place = some_constraints(grammar, 4, rng), int(rng.integers(4))
    found = masked_word_distribution(grammar, words, [place], EngineOptions(backend=engine), constraints)[0]
    masses = np.zeros(grammar.n_words)
    for w, word in enumerate(grammar.words):
        filled = [*words[:place], word, *words[place + 1:]]
        masses[w] = sum(p for p, nodes in all_trees(grammar, sentence_leaves(grammar, filled))
                        if keeps(grammar, nodes, constraints))
    expected = masses / masses.sum() if masses.sum() > 0 else masses
    np.testing.assert_allclose(found, expected, rtol=TIGHT, atol=1e-15)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), density=st.sampled_from([0.15, 0.4]), outside=st.sampled_from(["pruned", "full"]))
def test_constrained_charts_agree_with_the_reference_on_every_cell(
        random_grammar, is_left_out, engine, seed, density, outside):
    if is_left_out(engine, seed):
        return
    rng = np.random.default_rng(seed)
    grammar = random_grammar(seed, *rng.integers(1, 5, size=3), density)
    sentences = [some_sentence(grammar, rng, length) for length in (7, 0, 1, 9, 2)]
    constraints = [some_constraints(grammar, len(words), rng) if words else {} for words in sentences]
    expected = inside_outside(grammar, sentences, backend="reference", outside=outside, constraints=constraints)
    found = inside_outside(grammar, sentences, backend=engine, outside=outside, constraints=constraints)
    for chart, twin in zip(found, expected, strict=True):
        for values, wanted in ((chart.log_inside, twin.log_inside), (chart.log_outside, twin.log_outside),
                               (np.array([chart.log_prob]), np.array([twin.log_prob]))):
            assert (np.isneginf(values) == np.isneginf(wanted)).all()
            possible = ~np.isneginf(wanted)
            np.testing.assert_allclose(values[possible], wanted[possible], rtol=0, atol=TIGHT)


def test_what_no_tree_can_keep_has_probability_0(engine, tiny_grammar):
    words = ["she", "eats", "fish"]
    impossible = [{(0, 2): True, (1, 3): True}, {(0, 3): False}, {(1, 2): False}, {(1, 3): True, (1, 3, "NP"): True},
                  {(1, 3, "VP"): True, (1, 3): False}, {(0, 1, "V"): True}, {(0, 3, "V"): True}]
    charts = inside_outside(tiny_grammar, [words] * len(impossible), backend=engine, constraints=impossible)
    for chart in charts:
        assert chart.log_prob == -np.inf
        assert not chart.marginals.any()
    options = EngineOptions(backend=engine)
    assert masked_word_distribution(tiny_grammar, words, [2], options, {(0, 2): True}).sum() == 0
    assert list(viterbi_trees(tiny_grammar, [words], options, [{(0, 2): True}])) == [(-np.inf, None)]


def test_a_required_span_splits_the_probability_with_a_forbidden_one(random_grammar, quick_engine):
    """P(sentence, span) + P(sentence, no span) = P(sentence): at a length that enumeration does not reach."""
    grammar = random_grammar(3, 4, 4, 4, 0.9)
    words = some_sentence(grammar, np.random.default_rng(3), 40)
    spans = [(0, 2), (5, 20), (17, 39), (38, 40)]
    plain = inside_outside(grammar, [words], backend=quick_engine)[0]
    for span in spans:
        both = [np.exp(chart.log_prob - plain.log_prob) for chart in inside_outside(
            grammar, [words] * 2, backend=quick_engine, constraints=[{span: True}, {span: False}])]
        assert sum(both) == pytest.approx(1, rel=TIGHT)
        assert both[0] == pytest.approx(plain.marginals[span].sum(), rel=TIGHT)


def test_labelled_recall_keeps_the_constraints(random_grammar):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        grammar = random_grammar(seed, 3, 3, 3, 0.9)
        words = some_sentence(grammar, rng, 7)
        constraints = {(1, 4): bool(rng.integers(2)), (2, 6): False}
        chart = inside_outside(grammar, [words], constraints=[constraints])[0]
        if chart.log_prob > -np.inf:
            tree = labelled_recall(chart, constraints)
            assert len(tree) == 2 * len(words) - 1
            assert all((span in tree) == wanted for span, wanted in constraints.items())


@pytest.mark.parametrize(("constraints", "message"), [
    ([{(0, 2, "XX"): True}], r"names 'XX', which is no symbol of this grammar; it has \d+, such as"),
    ([{(2, 4): True}], "does not fit a sentence of 3 words; expected fenceposts 0 <= i < j <= 3"),
    ([{(1, 1): True}], "does not fit a sentence of 3 words"),
    ([{(0.0, 2): True}], "does not fit a sentence of 3 words"),
    ([{(0,): True}], r"expected \(i, j\) or \(i, j, symbol\)"),
    ([{(0, 2): "yes"}], "is 'yes'; expected True"),
    ([], "0 mappings for 1 sentences; expected a list with one mapping a sentence"),
    ({(0, 2): True}, "one mapping for 1 sentences"),
])
def test_constraints_that_make_no_sense_are_refused(tiny_grammar, constraints, message):
    with pytest.raises(UsageError, match=message):
        inside_outside(tiny_grammar, [["she", "eats", "fish"]], backend="reference", constraints=constraints)
