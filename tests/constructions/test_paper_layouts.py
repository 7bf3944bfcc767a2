"""The paper's own layouts, which move all inside probabilities in layer L: right in the end, at a cost."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from pcfg_artifact.constructions import hard
from pcfg_artifact.constructions.dense import DenseLayer
from pcfg_artifact.constructions.relative import RelativeInsideOutside, mark, relative_plan
from pcfg_artifact.constructions.rules import (
    inside_matrices,
    left_sibling_matrices,
    outside_symbols,
    right_sibling_matrices,
)
from pcfg_artifact.constructions.space import Space
from pcfg_artifact.constructions.transformer import BOUND, emission_matrix
from pcfg_artifact.constructions.weights import (
    HardHeads,
    HeadValue,
    Key,
    LayerWeights,
    Query,
    RelativeHeads,
    RelativePositions,
    one_head,
    telescope,
    unit_columns,
)

L = 6
ABSOLUTE = 1e-14  # the move adds and subtracts in one sum: measured 6e-17 absolute, but 9e-9 relative


def run(layers, e):
    for layer in layers:
        e = DenseLayer(layer)(e)
    return e


def copy(space, names, sign):
    """V that carries whole blocks from the attended token."""
    return tuple(HeadValue(name, one_head(sign * np.eye(space.width(name))), name, np.eye(space.width(name)))
                 for name in names)


# ---- Theorem 3.2: [w_1 .. w_n, EOS], everything moves one token to the right ----------------------------------------


def move_layer(space, roots, *, with_clear=True):
    """b_t = 0 at t = -1, 1 elsewhere; the root at word 1, and inside probabilities from the token before."""
    inside = [("inside", l) for l in range(L)]
    marks = np.zeros((L, space.width("outside")))
    marks[np.arange(L), [mark(space, i) - space["outside"].start for i in range(1, L + 1)]] = 1
    first = one_head(marks[:1])
    projector = one_head(np.diag(marks.sum(axis=0)))
    blocks = [("outside", l) for l in range(L)]
    root = RelativeHeads((Key("constant", "constant", 2.0),), (Query("constant", "outside", first),),
                         (HeadValue("outside", telescope(space, "outside", blocks, roots, L, first=0), "outside",
                                    marks),))
    clear = RelativeHeads((Key("outside", "outside", 2.0),), (Query("outside", "outside", projector),),
                          (HeadValue("outside", one_head(-marks.T), "outside", marks), *copy(space, inside, -1.0)))
    shift = RelativeHeads((Key("constant", "constant"),), (Query("constant", "constant", one_head(np.ones((1, 1)))),),
                          copy(space, inside, 1.0))
    bias = np.ones(2 * L + 1)
    bias[L - 1] = 0
    keys = Space([("inside", space["outside"].start), ("outside", space.width("outside")), ("constant", 1)])
    off = RelativePositions(keys, np.zeros((2 * L + 1, 3)))
    heads = (root, clear, shift) if with_clear else (root, shift)
    return LayerWeights(("root", None), space, heads, off, bias)


def moved_stream(grammar, sentence, *, with_eos=True, with_clear=True):
    plan = relative_plan(grammar, L)
    space = plan.space
    n_i, n = grammar.n_interminals, len(sentence)
    roots = [np.where(np.arange(grammar.n_nonterminals) < n_i, grammar.root, 0.0) if l else
             np.where(np.arange(grammar.n_nonterminals) >= n_i, grammar.root, 0.0) for l in range(L)]
    e = torch.zeros((1, n + with_eos, space.dim), dtype=torch.float64)
    e[..., space["constant"]] = 1
    emission = emission_matrix(grammar)
    for i, word in enumerate(sentence):
        e[0, i, space["inside", 0]][n_i:] = torch.from_numpy(emission[grammar.word_index[word]])
        e[0, i, mark(space, i + 1)] = 1
    layers = [*plan.layers[:L - 1], move_layer(space, roots, with_clear=with_clear), *plan.layers[L:]]
    return run(layers, e)[0]


@pytest.mark.parametrize("root", ["single", "distribution"])
def test_the_papers_layout_of_theorem_3_2_is_the_bos_layout_relabelled(random_grammar, random_sentence, root):
    for seed in range(2):
        grammar = random_grammar(seed, root=root)
        model = RelativeInsideOutside(grammar, L, backend="dense")
        for n in range(1, L + 1):
            sentence = random_sentence(grammar, n, seed)
            difference = moved_stream(grammar, sentence) - model(sentence)
            assert float(difference.abs().max()) <= ABSOLUTE


@pytest.mark.parametrize("missing", ["with_eos", "with_clear"])
def test_the_papers_layout_of_theorem_3_2_needs_eos_and_clearing(random_grammar, random_sentence, textbook, missing):
    grammar = random_grammar(1)
    sentence = random_sentence(grammar, 5)
    model = RelativeInsideOutside(grammar, L)
    stream = moved_stream(grammar, sentence, **{missing: False})
    _, outside = model.read_charts(torch.cat([stream, stream[:6 - len(stream)]]))
    assert np.abs(outside - textbook(grammar, sentence)[1]).max() > 1e-3


def test_if_the_input_knows_the_length_layer_l_is_not_needed(random_grammar, random_sentence):
    grammar = random_grammar(2)
    model = RelativeInsideOutside(grammar, L, backend="dense")
    space = model.plan.space
    for n in range(2, L + 1):
        sentence = random_sentence(grammar, n)
        e = next(model.steps(sentence)).clone()
        e[:, space["outside"]] = 0  # no marks
        e[0, space["outside", n - 1]] = torch.from_numpy(grammar.root)
        layers = [layer for layer in model.plan.layers if layer.computes[0] != "root"]
        assert len(layers) == 2 * L - 2
        assert torch.equal(run(layers, e[None])[0], model(sentence))


def test_a_root_fixed_at_the_longest_span_gives_shorter_sentences_no_outside(random_grammar, random_sentence):
    grammar = random_grammar(2)
    model = RelativeInsideOutside(grammar, L, backend="dense")
    space = model.plan.space
    e = next(model.steps(random_sentence(grammar, L - 1))).clone()
    e[:, space["outside"]] = 0
    e[0, space["outside", L - 1]] = torch.from_numpy(grammar.root)  # (1, L) although n < L
    last = run([layer for layer in model.plan.layers if layer.computes[0] != "root"], e[None])[0]
    _, outside = model.read_charts(last)
    assert (outside == 0).all()


# ---- Theorem 3.1: positions 1 .. n, no BOS or EOS -------------------------------------------------------------------


def moved_hard_stream(grammar, sentence, *, with_clear=True):
    """d = (4|N|+1)L; layer L has four heads, and outside probabilities lie at the ends of their own span."""
    n, n_i = grammar.n_nonterminals, grammar.n_interminals
    everything = np.arange(n)
    unions = {name: ((name, 0), (name, L - 1)) for name in hard.BLOCKS}
    space = Space([*(((name, l), n) for name in hard.BLOCKS for l in range(L)), ("position", L)], unions)
    assert space.dim == (4 * n + 1) * L
    rules, writes = inside_matrices(grammar, everything[:n_i], everything, everything), unit_columns(np.arange(n_i), n)
    at = partial(hard.only_at, L, zeta=BOUND)
    layers = [hard.inside_layer(space, l, rules, rules.transposed(), writes, at) for l in range(1, L)]

    roots = [np.where((everything < n_i) == (l > 0), grammar.root, 0.0) for l in range(L)]

    def roots_at(name, **which):
        matrices = telescope(space, name, [(name, l) for l in range(L)], roots, L, first=0, **which)
        return (HeadValue(name, matrices, "position", np.eye(L)),)

    at_first = np.full((L, L), -BOUND)
    at_first[:, 0] = 1
    starts, ends = ([(name, l) for l in range(L)] for name in ("inside_start", "inside_end"))
    own = copy(space, [*starts, *ends], -1.0) if with_clear else ()
    heads = (HardHeads((), at_first, roots_at("outside_start")),
             HardHeads((), hard.only_at(L, 0, BOUND, 1), (*own, *roots_at("outside_end", is_taken=False))),
             HardHeads((), hard.only_at(L, 1, BOUND, 1),
                       (*copy(space, starts, 1.0), *roots_at("outside_end", is_added=False))),
             HardHeads((), hard.only_at(L, -1, BOUND, 1), copy(space, ends, 1.0)))
    layers.append(LayerWeights(("root", None), space, heads))
    wide, narrow = outside_symbols(grammar, typed=True)
    for l in range(L - 2, -1, -1):
        children = wide if l else narrow
        left = left_sibling_matrices(grammar, children, everything, everything)
        right = right_sibling_matrices(grammar, children, everything, everything)
        layer = hard.outside_layer(space, l, L, (left, left.transposed(), right, right.transposed()),
                                   unit_columns(children, n), at)
        start, end = layer.heads
        layers.append(replace(layer, heads=(replace(start, position=at(l)),
                                            replace(end, position=at(-l)))))
    e = torch.zeros((1, len(sentence), space.dim), dtype=torch.float64)
    emission = emission_matrix(grammar)
    for i, word in enumerate(sentence):
        for name in ("inside_start", "inside_end"):
            e[0, i, space[name, 0]][n_i:] = torch.from_numpy(emission[grammar.word_index[word]])
        e[0, i, space["position"].start + i] = 1
    return space, run(layers, e)[0].numpy(), layers


def hard_outside(space, stream, n, n_nonterminals):
    outside = np.zeros((n + 1, n + 1, n_nonterminals))
    for l in range(n):
        for i in range(n - l):
            outside[i, i + l + 1] = stream[i, space["outside_start", l]]
    return outside


@pytest.mark.parametrize("root", ["single", "distribution"])
def test_the_papers_layout_of_theorem_3_1_gives_every_outside_and_loses_the_root_span(
        random_grammar, random_sentence, textbook, root):
    grammar = random_grammar(1, root=root)
    for n in range(1, L + 1):
        sentence = random_sentence(grammar, n)
        space, stream, layers = moved_hard_stream(grammar, sentence)
        inside, outside = textbook(grammar, sentence)
        assert np.abs(hard_outside(space, stream, n, grammar.n_nonterminals) - outside).max() <= ABSOLUTE
        assert len(layers) == 2 * L - 1
        assert max(layer.n_heads for layer in layers) == 2 * max(grammar.n_interminals, grammar.n_preterminals)
        for l in range(n):  # after the move a(i, j) is found at i - 1 or at j + 1
            for i in range(n - l):
                if i > 0:
                    np.testing.assert_allclose(stream[i - 1, space["inside_start", l]], inside[i, i + l + 1],
                                               atol=ABSOLUTE)
        kept = stream[:, space["inside_start", n - 1]], stream[:, space["inside_end", n - 1]]
        assert all(np.abs(block).max() <= ABSOLUTE for block in kept)  # nowhere left
        assert inside[0, n].max() > 1e6 * ABSOLUTE


def test_the_papers_layout_of_theorem_3_1_needs_the_clearing_head(random_grammar, random_sentence, textbook):
    grammar = random_grammar(1)
    sentence = random_sentence(grammar, L)
    space, stream, _ = moved_hard_stream(grammar, sentence, with_clear=False)
    outside = hard_outside(space, stream, L, grammar.n_nonterminals)
    assert np.abs(outside - textbook(grammar, sentence)[1]).max() > 1e-3
