"""The projected engine against its slow twin, and against exact Inside-Outside where nothing is projected."""

import numpy as np
import pytest

from pcfg_artifact.approximation.low_rank import LowRank, approximate_charts
from pcfg_artifact.approximation.restriction import compact, restrict, select_symbols
from pcfg_artifact.approximation.transforms import SIGN_RULES
from pcfg_artifact.errors import UsageError
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.leaves import sentence_leaves
from tests.approximation.projected_reference import projected_inside, projected_outside

# Sums of different order in float64, and cancellation in W+ W: relative to the largest entry of the span.
NORMWISE = 1e-11
# No projection: only sums of positive numbers in another order.
RELATIVE = 1e-12
LENGTHS = (1, 2, 3, 4, 7)


def normwise_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest error of a span relative to its largest entry; a span that must be 0 counts in full."""
    scale = np.abs(expected).max(axis=-1)
    error = np.abs(found - expected).max(axis=-1)
    return float((error / np.where(scale > 0, scale, 1.0)).max())


def sentences_of(grammar, seed):
    rng = np.random.default_rng(seed)
    return [rng.choice(grammar.words, length).tolist() for length in LENGTHS]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rule", SIGN_RULES)
def test_projected_engine_equals_the_recurrences_as_written(random_grammar, random_transforms, seed, rule):
    grammar = random_grammar(seed)
    interminals, preterminals = select_symbols(grammar, 4, 3)
    transforms = random_transforms(seed, 4, 2)
    few = compact(grammar, interminals)
    for sentence in sentences_of(grammar, seed):
        leaves = sentence_leaves(grammar, sentence)

        def project(width, vector):
            w = transforms[min(max(width, 2), 7)]
            return np.linalg.pinv(w) @ w @ vector

        alpha = projected_inside(few, leaves, project, SIGN_RULES[rule])
        beta = projected_outside(few, alpha, project, SIGN_RULES[rule])
        inside, outside = approximate_charts(grammar, sentence, interminals, preterminals, transforms, rule)
        ours = np.concatenate([interminals, np.arange(grammar.n_interminals, grammar.n_nonterminals)])
        is_read = np.isin(ours, np.concatenate([interminals, preterminals]))
        assert normwise_error(inside[..., ours], alpha) < NORMWISE
        assert normwise_error(outside[..., ours][..., is_read], beta[..., is_read]) < NORMWISE
        assert not outside[..., ours][..., ~is_read].any()


def test_sign_rules_differ_where_a_projection_makes_entries_negative(random_grammar, random_transforms):
    grammar = random_grammar(1)
    interminals, preterminals = select_symbols(grammar, 4, 3)
    sentence = sentences_of(grammar, 1)[3]
    transforms = random_transforms(1, 4, 2)
    charts = {rule: approximate_charts(grammar, sentence, interminals, preterminals, transforms, rule)[0]
              for rule in SIGN_RULES}
    assert charts["signed"].min() < 0 <= charts["clip"].min()
    assert normwise_error(charts["literal"], charts["signed"]) > 1e-3
    assert normwise_error(charts["clip"], charts["signed"]) > 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_without_projection_it_is_inside_outside_of_the_restricted_grammar(random_grammar, seed):
    grammar = random_grammar(seed)
    interminals, _ = select_symbols(grammar, 4, None)
    preterminals = np.arange(grammar.n_interminals, grammar.n_nonterminals)
    sentences = sentences_of(grammar, seed)
    charts = inside_outside(restrict(grammar, interminals), sentences, backend="reference", outside="full")
    for sentence, chart in zip(sentences, charts, strict=True):
        inside, outside = approximate_charts(grammar, sentence, interminals, preterminals)
        np.testing.assert_allclose(inside, np.exp(chart.log_inside), rtol=RELATIVE, atol=0)
        np.testing.assert_allclose(outside, np.exp(chart.log_outside), rtol=RELATIVE, atol=0)


def test_restricted_grammar_equals_one_whose_other_rules_were_deleted_by_hand(random_grammar):
    grammar = random_grammar(7)
    kept, _ = select_symbols(grammar, 3, None)
    names = {grammar.interminals[a] for a in kept} | set(grammar.preterminals)
    rules = [(grammar.nonterminals[a], grammar.nonterminals[b], grammar.nonterminals[c], p)
             for (a, b, c), p in zip(grammar.binary, grammar.binary_prob, strict=True)]
    deleted = type(grammar).from_rules(
        root={grammar.interminals[a]: grammar.root[a] for a in kept},
        binary=[rule for rule in rules if set(rule[:3]) <= names], is_proper=False,
        lexical=[(grammar.nonterminals[a], grammar.words[w], p)
                 for (a, w), p in zip(grammar.lexical, grammar.lexical_prob, strict=True)])
    sentences = sentences_of(grammar, 7)
    for found, expected in zip(inside_outside(restrict(grammar, kept), sentences),
                               inside_outside(deleted, sentences, backend="reference"), strict=True):
        assert found.log_prob == pytest.approx(expected.log_prob, rel=RELATIVE)
        for name in grammar.nonterminals:
            mine = np.exp(found.log_inside[..., grammar.nonterminal_index[name]])
            if name in deleted.nonterminal_index:
                theirs = np.exp(expected.log_inside[..., deleted.nonterminal_index[name]])
                np.testing.assert_allclose(mine, theirs, rtol=RELATIVE, atol=0)
            else:
                assert not mine.any()


def test_full_rank_equals_no_projection_exactly(random_grammar, random_transforms):
    grammar = random_grammar(3)
    interminals, preterminals = select_symbols(grammar, 4, 3)
    for sentence in sentences_of(grammar, 3):
        bare = approximate_charts(grammar, sentence, interminals, preterminals)
        full = approximate_charts(grammar, sentence, interminals, preterminals, random_transforms(3, 4, 4))
        assert all(np.array_equal(a, b) for a, b in zip(bare, full, strict=True))


def test_scores_do_not_depend_on_the_order_of_the_in_terminals(random_grammar, random_transforms):
    grammar = random_grammar(4)
    interminals, preterminals = select_symbols(grammar, 4, 3)
    transforms = random_transforms(4, 4, 2)
    order = np.array([2, 0, 3, 1])
    shuffled = {width: w[:, order] for width, w in transforms.items()}
    sentence = sentences_of(grammar, 4)[-1]
    found = approximate_charts(grammar, sentence, interminals[order], preterminals, shuffled)
    expected = approximate_charts(grammar, sentence, interminals, preterminals, transforms)
    for a, b in zip(found, expected, strict=True):
        assert normwise_error(a, b) < NORMWISE


def test_sixty_words_neither_underflow_nor_overflow(random_grammar, random_transforms):
    grammar = random_grammar(5)
    interminals, _ = select_symbols(grammar, 4, 3)
    model = LowRank(grammar, interminals, random_transforms(5, 4, 3), 60)
    sentence = np.random.default_rng(5).choice(grammar.words, 60).tolist()
    leaves = sentence_leaves(grammar, sentence)
    charts = [model.chart(leaves), model.chart(leaves * 1e-30), model.chart(leaves * 1e30)]
    whole = [chart.span_scores() / chart.span_scores()[0, 60] for chart in charts]
    assert np.isfinite(whole[0]).all()
    assert whole[0].max() > 0
    for other in whole[1:]:
        np.testing.assert_allclose(other, whole[0], rtol=1e-9, atol=1e-12)


def test_transform_for_another_number_of_in_terminals_is_refused(random_grammar, random_transforms):
    grammar = random_grammar(0)
    with pytest.raises(UsageError, match="one column for each of the 3 in-terminals"):
        LowRank(grammar, select_symbols(grammar, 3, None)[0], random_transforms(0, 4, 2), 10)


def test_sentence_longer_than_prepared_for_is_refused(random_grammar):
    grammar = random_grammar(0)
    model = LowRank(grammar, select_symbols(grammar, 3, None)[0], None, 4)
    with pytest.raises(UsageError, match="more than max_length 4"):
        model.chart(sentence_leaves(grammar, [grammar.words[0]] * 5))
