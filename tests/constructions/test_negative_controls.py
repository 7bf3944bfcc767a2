"""Slips in the paper's text, put into otherwise right models: each must fail, or the tests above would see nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pcfg_artifact.constructions.hard import hard_plan
from pcfg_artifact.constructions.relative import relative_plan
from pcfg_artifact.constructions.transformer import ConstructedTransformer
from pcfg_artifact.constructions.weights import HeadMatrices, HeadValue, Key

L = 6
WRONG = 1e-3


def changed(plan, kind, change):
    """The plan with `change` applied to the heads of every layer of a kind."""
    return replace(plan, layers=tuple(
        replace(layer, heads=tuple(change(layer, heads) for heads in layer.heads)) if layer.computes[0] == kind
        else layer for layer in plan.layers))


def swap_children(layer, heads):
    return replace(heads, queries=tuple(replace(q, matrices=q.matrices.transposed()) for q in heads.queries))


def offset_keys(layer, heads):
    """The text puts a(i-l1, i) into key block l - l1; it belongs into l - 1 - l1."""
    l = layer.computes[1] - 1
    return replace(heads, keys=(Key(0, ("inside", l)), *(Key(s, ("inside", l - s)) for s in range(1, l))))


def bias_by_layer_index(plan):
    def wrong(index, layer):
        t = np.arange(-L, L + 1)
        low, high = layer.bias.min(), layer.bias.max()
        return replace(layer, bias=np.where((t >= 0) & (t <= index + 1), high, low))
    return replace(plan, layers=tuple(wrong(index, layer) if layer.computes[0] == "outside" else layer
                                      for index, layer in enumerate(plan.layers, start=1)))


def without_clear(plan):
    return replace(plan, layers=tuple(replace(layer, heads=layer.heads[:1]) if layer.computes[0] == "root" else layer
                                      for layer in plan.layers))


WRONG_PLANS = {
    "swapped children": (lambda plan: changed(plan, "inside", swap_children), 0),
    "key blocks one off": (lambda plan: changed(plan, "inside", offset_keys), 0),
    "bias by layer index": (bias_by_layer_index, 1),
    "marks not cleared": (without_clear, 1),
}


@pytest.mark.parametrize("backend", ["dense", "structured"])
@pytest.mark.parametrize("name", WRONG_PLANS)
def test_a_slip_in_theorem_3_2_is_seen(random_grammar, random_sentence, textbook, name, backend):
    change, chart = WRONG_PLANS[name]
    worst = 0.0
    for seed in range(3):
        grammar = random_grammar(seed)
        sentence = random_sentence(grammar, L, seed)
        model = ConstructedTransformer(grammar, L, change(relative_plan(grammar, L)), backend=backend)
        found, expected = model.read_charts(model(sentence))[chart], textbook(grammar, sentence)[chart]
        worst = max(worst, float(np.abs(found - expected).max() / expected[expected > 0].max()))
    assert worst > WRONG


def test_swapped_children_are_seen_in_theorem_3_1(random_grammar, random_sentence, textbook, relative_error):
    grammar = random_grammar(1)
    sentence = random_sentence(grammar, L)
    model = ConstructedTransformer(grammar, L, changed(hard_plan(grammar, L), "inside", swap_children))
    assert relative_error(model.read_charts(model(sentence))[0], textbook(grammar, sentence)[0]) > WRONG


def test_adding_p_before_taking_b_away_loses_small_probabilities(random_grammar, random_sentence):
    """Numerical rule: the gate p - b is formed first.  Otherwise everything below M * 1e-16 is rounded away."""
    grammar = random_grammar(0)
    model = ConstructedTransformer(grammar, L, relative_plan(grammar, L, bound=1.0), backend="dense")
    key = torch.tensor(1e-20, dtype=torch.float64)
    layer = model.plan.layers[0]
    p, b = layer.positions.table[L - 1, 0], layer.bias[L - 1]
    assert float(torch.relu((key + p) - b)) == 0.0
    gate = model.layers[0].heads[0].gate[L - 1, 0]
    assert float(torch.relu(key + gate)) == 1e-20


def mixed_hard_plan(grammar, transforms, *, both_signs):
    """Low rank on Theorem 3.1: k heads instead of |I|, as the paper says is easily done."""
    def mix(layer, heads):
        transform = transforms[layer.computes[1]]
        (value,) = heads.values
        writes = HeadMatrices.from_dense(
            np.einsum("hnm,rh->rnm", value.matrices.dense(), np.linalg.pinv(transform).T))
        return replace(heads, queries=tuple(replace(q, matrices=q.matrices.mixed(transform)) for q in heads.queries),
                       values=(HeadValue(value.target, writes, value.source, value.read),))

    def negative(heads):
        return replace(heads, queries=tuple(replace(q, matrices=q.matrices.negated()) for q in heads.queries),
                       values=tuple(replace(v, matrices=v.matrices.negated()) for v in heads.values))

    plan = changed(hard_plan(grammar, L), "inside", mix)
    return plan if not both_signs else replace(plan, layers=tuple(
        replace(layer, heads=(*layer.heads, *map(negative, layer.heads))) if layer.computes[0] == "inside" else layer
        for layer in plan.layers))


def test_low_rank_on_hard_attention_needs_both_signs(
        random_grammar, random_sentence, random_transforms, textbook_approximate, spanwise_error):
    worst = 0.0
    for seed in range(4):
        grammar, everything = random_grammar(seed), np.arange(4)
        transforms = random_transforms(seed, 2, 4, range(2, L + 1))
        sentence = random_sentence(grammar, L, seed)
        expected, _ = textbook_approximate(grammar, sentence, everything, np.arange(4, 9), transforms, "signed")
        for both_signs in (True, False):
            model = ConstructedTransformer(grammar, L, mixed_hard_plan(grammar, transforms, both_signs=both_signs))
            inside, _ = model.read_charts(model(sentence))
            if both_signs:
                assert spanwise_error(inside[..., :4], expected[..., :4]) <= 1e-11
            else:
                worst = max(worst, spanwise_error(inside[..., :4], expected[..., :4]))
    assert worst > WRONG
