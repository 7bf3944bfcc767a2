"""Derivatives of log weights: against finite differences, a taped twin, and counts over all trees."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.parsing.differentiable import RuleWeights, em_step, leaf_weights, log_weights, normalised
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.leaves import sentence_leaves

# S and T over A, B and each other; ambiguous, with a rule of probability 0 that alone would fill some cells.
GRAMMAR = PCFG.from_rules(
    {"S": 0.7, "T": 0.2, "A": 0.1},
    [("S", "S", "S", 0.2), ("S", "A", "B", 0.4), ("S", "T", "B", 0.4), ("T", "A", "S", 0.5), ("T", "B", "B", 0.5),
     ("T", "T", "A", 0.0)],
    [("A", "x", 0.3), ("A", "y", 0.7), ("B", "x", 0.6), ("B", "z", 0.4)])
SENTENCES = [["x"], ["y", "z"], ["x", "x", "z"], ["y", "x", "x", "z", "x"], ["x"] * 7]


def taped_log_weight(grammar, sentence, weights):
    """The recurrence on scalars, every step on autograd's tape."""
    ids, n = grammar.encode(sentence), len(sentence)
    inside = {}
    for t, word in enumerate(ids):
        for e, (a, w) in enumerate(grammar.lexical.tolist()):
            if w == word:
                inside[a, t, t + 1] = weights.lexical[e]
    for width in range(2, n + 1):
        for i in range(n - width + 1):
            for r, (a, b, c) in enumerate(grammar.binary.tolist()):
                for k in range(i + 1, i + width):
                    if (b, i, k) in inside and (c, k, i + width) in inside:
                        term = weights.binary[r] * inside[b, i, k] * inside[c, k, i + width]
                        inside[a, i, i + width] = inside.get((a, i, i + width), 0.0) + term
    return torch.log(sum(weights.root[a] * inside[a, 0, n] for a in range(grammar.n_nonterminals)
                         if (a, 0, n) in inside))


def total(grammar, sentences, weights):
    return torch.stack([c.log_weight for c in inside_outside(grammar, sentences, backend="torch", weights=weights)])


def test_log_weights_and_charts_are_those_of_the_engines():
    ours = inside_outside(GRAMMAR, SENTENCES, backend="torch", weights=RuleWeights.of(GRAMMAR))
    for chart, expected in zip(ours, inside_outside(GRAMMAR, SENTENCES, backend="reference"), strict=True):
        np.testing.assert_allclose(float(chart.log_weight), expected.log_prob, rtol=1e-12)
        np.testing.assert_allclose(chart.log_inside, expected.log_inside, rtol=1e-12)
        np.testing.assert_allclose(chart.log_outside, expected.log_outside, rtol=1e-12)
        np.testing.assert_allclose(chart.marginals, expected.marginals, atol=1e-12)


def test_derivatives_are_those_of_finite_differences():
    weights = RuleWeights.of(GRAMMAR, requires_grad=True)
    # 0 is the border of what a weight may be: differences need room on both sides
    inner = [(w.detach() + 0.05).requires_grad_() for w in weights]
    assert torch.autograd.gradcheck(lambda *w: total(GRAMMAR, SENTENCES, RuleWeights(*w)), inner, atol=1e-7)


def test_derivatives_by_leaves_are_those_of_finite_differences():
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.rand(n, 2, dtype=torch.float64, generator=generator).requires_grad_() for n in (1, 2, 4)]
    weights = RuleWeights.of(GRAMMAR)
    assert torch.autograd.gradcheck(lambda *rows: log_weights(GRAMMAR, rows, weights.root, weights.binary), leaves)


@pytest.mark.parametrize("sentence", SENTENCES[1:4])
def test_derivatives_are_those_of_a_taped_recurrence_at_a_rule_of_weight_0_too(sentence):
    ours, taped = (RuleWeights.of(GRAMMAR, requires_grad=True) for _ in range(2))
    total(GRAMMAR, [sentence], ours).sum().backward()
    taped_log_weight(GRAMMAR, sentence, taped).backward()
    for name in RuleWeights._fields:
        expected = getattr(taped, name).grad
        np.testing.assert_allclose(getattr(ours, name).grad, 0.0 if expected is None else expected, rtol=1e-10,
                                   atol=1e-12, err_msg=name)


def random_grammar(seed, n_rules):
    rng = np.random.default_rng(seed)
    triples = [(a, b, c) for a in ("S", "T", "U") for b in ("S", "T", "U", "A", "B") for c in ("S", "T", "U", "A", "B")]
    chosen = {triples[i] for i in rng.permutation(len(triples))[:n_rules]} | {("S", "A", "B"), ("T", "A", "A"),
                                                                            ("U", "B", "A")}
    binary = sorted(chosen)
    prob = {rule: rng.random() * (rng.random() < 0.9) for rule in binary}
    mass = {a: sum(p for rule, p in prob.items() if rule[0] == a) or 1.0 for a in "STU"}
    return PCFG.from_rules({"S": 1.0}, [(*rule, p / mass[rule[0]]) for rule, p in prob.items()],
                           [("A", "x", 0.5), ("A", "y", 0.5), ("B", "x", 0.9), ("B", "z", 0.1)], is_proper=False)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0, 1, 3, 30, 75]),
       st.lists(st.lists(st.sampled_from("xyz"), min_size=1, max_size=5), min_size=1, max_size=4))
def test_random_grammars_dense_and_sparse_in_padded_batches(seed, n_rules, sentences):
    grammar = random_grammar(seed, n_rules)
    weights = RuleWeights.of(grammar, requires_grad=True)
    charts = inside_outside(grammar, sentences, backend="torch", weights=weights)
    possible = [c for c in charts if c.log_prob > -np.inf]
    assert [c.log_prob == -np.inf for c in charts] == \
        [c.log_prob == -np.inf for c in inside_outside(grammar, sentences, backend="reference")]
    if not possible:
        return
    torch.stack([c.log_weight for c in possible]).sum().backward()
    taped = RuleWeights.of(grammar, requires_grad=True)
    chosen = [s for s, c in zip(sentences, charts, strict=True) if c.log_prob > -np.inf]
    sum(taped_log_weight(grammar, sentence, taped) for sentence in chosen).backward()
    for name in RuleWeights._fields:
        expected = getattr(taped, name).grad
        np.testing.assert_allclose(getattr(weights, name).grad, 0.0 if expected is None else expected, rtol=1e-9,
                                   atol=1e-12)
        # A count is the weight times the derivative; every word is read once, every sentence has one root.
        counts = sum(getattr(c.counts, name) for c in possible)
        np.testing.assert_allclose(counts, (getattr(weights, name) * getattr(weights, name).grad).detach(), atol=1e-9)
    assert sum(c.counts.lexical.sum() for c in possible) == pytest.approx(sum(map(len, chosen)))
    assert sum(c.counts.binary.sum() for c in possible) == pytest.approx(sum(len(s) - 1 for s in chosen))


def test_weights_need_not_sum_to_one():
    # All weights times 10: a tree of L words has L lexical rules, L-1 binary ones and a root.
    weights = RuleWeights(*(10 * w for w in RuleWeights.of(GRAMMAR)))
    for sentence, value in zip(SENTENCES, total(GRAMMAR, SENTENCES, weights), strict=True):
        expected = inside_outside(GRAMMAR, [sentence])[0].log_prob + 2 * len(sentence) * np.log(10)
        assert float(value) == pytest.approx(expected)


def test_long_sentences_of_tiny_weights_stay_in_range():
    weights = RuleWeights.of(GRAMMAR, requires_grad=True)
    tiny = RuleWeights(weights.root, weights.binary * 1e-8, weights.lexical * 1e-8)
    value = total(GRAMMAR, [["x"] * 40], tiny)  # far below the smallest float64
    value.sum().backward()
    assert float(value[0].detach()) < -1400
    # Euler: the log weight grows by its 39 binary rules
    assert float((weights.binary.grad * weights.binary).sum().detach()) == pytest.approx(39.0)


def test_a_sentence_without_a_tree_has_no_weight_and_no_derivative():
    weights = RuleWeights.of(GRAMMAR, requires_grad=True)
    value = total(GRAMMAR, [["z", "y"], ["unheard", "x"]], weights)
    assert value.tolist() == [-np.inf, -np.inf]
    value.sum().backward()
    assert all(bool((w.grad == 0).all()) for w in weights)


def test_leaves_are_those_of_the_engines():
    for sentence in [*SENTENCES, ["unheard", "x"]]:
        ours = leaf_weights(GRAMMAR, sentence, RuleWeights.of(GRAMMAR).lexical)
        np.testing.assert_array_equal(ours, sentence_leaves(GRAMMAR, sentence))


@pytest.mark.parametrize(("change", "message"), [
    (lambda w: w._replace(binary=w.binary[1:]), "the weights of binary have the shape"),
    (lambda w: w._replace(lexical=-w.lexical), "the weights of lexical must be 0 or more, found -0.7"),
])
def test_weights_that_fit_no_grammar_are_refused(change, message):
    with pytest.raises(UsageError, match=message):
        inside_outside(GRAMMAR, [["x"]], backend="torch", weights=change(RuleWeights.of(GRAMMAR)))
    with pytest.raises(UsageError, match="say backend='torch'"):
        inside_outside(GRAMMAR, [["x"]], weights=RuleWeights.of(GRAMMAR))


def test_a_round_of_em_never_lowers_the_likelihood_and_ends_at_the_softmax_of_a_flat_gradient():
    tokens = sample_trees(GRAMMAR, 60, seed=3, max_length=12).tokens
    sentences = [tokens.row(s) for s in range(60)]
    grammar, likelihoods = GRAMMAR, []
    for _ in range(8):
        grammar, likelihood = em_step(grammar, sentences)
        likelihoods.append(likelihood)
    assert np.all(np.diff(likelihoods) > -1e-12)
    scores = RuleWeights(*(torch.log(w.clamp(min=1e-300)).requires_grad_() for w in RuleWeights.of(grammar)))
    before = RuleWeights(*(torch.log(w.clamp(min=1e-300)).requires_grad_() for w in RuleWeights.of(GRAMMAR)))
    steepness = []
    for start in (before, scores):
        (-total(grammar, sentences, normalised(grammar, start)).mean()).backward()
        steepness.append(sum(float(s.grad.abs().sum()) for s in start))
    assert steepness[1] < steepness[0] / 10
