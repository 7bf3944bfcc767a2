"""What is particular to Theorem 3.1; test_relative.py has what both theorems share."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pcfg_artifact.constructions.hard import HardAttentionInsideOutside, hard_plan
from pcfg_artifact.constructions.transformer import ConstructedTransformer, Readout

TOLERANCE = 1e-12  # relative, every entry: sums of positive products in float64, measured 7e-16
L = 6


def test_the_copies_at_the_ends_of_spans_hold_the_same(random_grammar, textbook, random_sentence, relative_error):
    grammar = random_grammar(1, root="distribution")
    model = HardAttentionInsideOutside(grammar, L)
    model.plan = replace(
        model.plan, inside=Readout(tuple(("inside_end", l) for l in range(L)), model.plan.inside.symbols,
                                   row=lambda i, j: j),
        outside=Readout(tuple(("outside_end", l) for l in range(L)), model.plan.outside.symbols,
                        row=lambda i, j: j + 1))
    sentence = random_sentence(grammar, L - 1)
    for found, expected in zip(model.read_charts(model(sentence)), textbook(grammar, sentence), strict=True):
        assert relative_error(found, expected) <= TOLERANCE


def test_zeta_of_twice_the_length_is_enough_for_probabilities(random_grammar, random_sentence):
    grammar = random_grammar(4, root="distribution")
    sentence = random_sentence(grammar, L)
    small, large = (HardAttentionInsideOutside(grammar, L, bound=zeta)(sentence) for zeta in (2 * L + 1, 1e30))
    assert torch.equal(small, large)


@pytest.mark.parametrize("shape", [(4, 5), (6, 3), (1, 2)])
def test_sizes_are_those_that_are_claimed(random_grammar, shape):
    grammar = random_grammar(0, n_interminals=shape[0], n_preterminals=shape[1])
    n = sum(shape)
    for typed, n_heads in ((True, 2 * max(shape)), (False, 2 * n)):
        model = HardAttentionInsideOutside(grammar, L, typed=typed, backend="dense")
        assert model.n_layers == 2 * L - 1
        assert model.n_heads == max(sum(len(h.query) for h in layer.heads) for layer in model.layers) \
            == max(n_heads, 3)
        assert model.embedding_dim == (4 * n + 1) * L  # with BOS and EOS
        assert all(h.query.shape[1:] == h.value.shape[1:] == (model.embedding_dim,) * 2
                   for layer in model.layers for h in layer.heads)


def test_root_heads_may_sit_in_the_first_layer(random_grammar, random_sentence):
    grammar = random_grammar(3, root="distribution")
    plan = hard_plan(grammar, L)
    first, *inside, root, outside = *plan.layers[:L], plan.layers[L:]
    layers = (replace(first, heads=first.heads + root.heads), *inside, *outside)
    shorter = ConstructedTransformer(grammar, L, replace(plan, layers=layers))
    assert shorter.n_layers == 2 * L - 2
    model = HardAttentionInsideOutside(grammar, L)
    for n in range(1, L + 1):
        sentence = random_sentence(grammar, n)
        assert torch.equal(shorter(sentence), model(sentence))


def test_one_head_for_each_term_of_the_outside_recursion_gives_the_papers_count(
        random_grammar, random_sentence, textbook, relative_error):
    grammar = random_grammar(3)
    plan = hard_plan(grammar, L, typed=False)

    def split(heads):
        half = len(heads.queries) // 2
        return (replace(heads, queries=heads.queries[:half]), replace(heads, queries=heads.queries[half:]))

    layers = [replace(layer, heads=tuple(part for heads in layer.heads for part in split(heads)))
              if layer.computes[0] == "outside" else layer for layer in plan.layers]
    model = ConstructedTransformer(grammar, L, replace(plan, layers=tuple(layers)))
    assert model.n_heads == 4 * grammar.n_nonterminals
    sentence = random_sentence(grammar, L)
    for found, expected in zip(model.read_charts(model(sentence)), textbook(grammar, sentence, typed=False),
                               strict=True):
        assert relative_error(found, expected) <= TOLERANCE


def test_word_ids_are_accepted_as_words(random_grammar):
    grammar = random_grammar(0)
    model = HardAttentionInsideOutside(grammar, 3)
    assert torch.equal(model(np.array([1, 0, 2])), model(["w1", "w0", "w2"]))
