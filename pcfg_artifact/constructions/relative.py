"""Theorem 3.2: attention with relative positions runs Inside-Outside in 2L-1 layers and 2|N|L+1 dimensions.

Tokens [BOS, w_1 .. w_n] at positions 0 .. n.  With the paper's inclusive spans and offset l = j - i (width l + 1),
the token at position q holds

    ("inside", l)    a(q-l, q)        inside probabilities of the span of offset l that ends at q
    ("outside", l)   b(q+1, q+1+l)    outside probabilities of the span of offset l that starts right after q
    "constant"       1                what every compute head reads from the token it attends to: V_h = u_A (x) constant

Keeping outside probabilities one step before their span puts a span's two neighbours within reach of one rule product
and makes the paper's "move" of all inside probabilities in layer L unnecessary.  Before layer L the outside blocks are
free: word i carries its position as a 1 in the first coordinate of ("outside", i-1), its mark.

The key has 2L blocks as wide as N.  p_t puts M on one of them, b_{t, layer} takes M away from all, and M bounds every
probability: after the ReLU only the block that p_t chose is left.  So the shift t = j - i chooses which block of the
attended token's key meets which block of the query: that is how one head sums over all split points.
"""

from __future__ import annotations

import numpy as np
import torch

from pcfg_artifact.constructions.rules import (
    inside_matrices,
    left_sibling_matrices,
    outside_symbols,
    right_sibling_matrices,
)
from pcfg_artifact.constructions.space import Space
from pcfg_artifact.constructions.transformer import BOUND, ConstructedTransformer, Plan, Readout, checked_length
from pcfg_artifact.constructions.weights import (
    HeadMatrices,
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
from pcfg_artifact.grammar.pcfg import PCFG


class RelativeInsideOutside(ConstructedTransformer):
    """The transformer of Theorem 3.2.

    typed: outside probabilities of in-terminals on width >= 2 and pre-terminals on width 1 only (max(|I|, |P|) heads);
    otherwise of all of N everywhere, as the recursion formally gives them (|N| heads).
    bound: the M of the argument.  rescale: multiply each word's leaf by a constant, needed in float32.
    """

    def __init__(self, grammar: PCFG, max_length: int = 25, *, typed: bool = True, bound: float = BOUND,
                 backend: str = "auto", dtype: torch.dtype = torch.float64, rescale: bool = False) -> None:
        super().__init__(grammar, max_length, relative_plan(grammar, max_length, typed=typed, bound=bound),
                         backend=backend, dtype=dtype, rescale=rescale)


def claimed_sizes(n: int, L: int) -> dict[str, int]:
    """What Theorem 3.2 says for n non-terminals and sentences of up to L words."""
    return {"layers": 2 * L - 1, "heads": n, "dimensions": 2 * n * L + 1}


def relative_plan(grammar: PCFG, max_length: int, *, typed: bool = True, bound: float = BOUND) -> Plan:
    """All weights of Theorem 3.2, layer by layer in the order of the argument."""
    L, n = checked_length(max_length), grammar.n_nonterminals
    everything, interminals = np.arange(n), np.arange(grammar.n_interminals)
    wide, narrow = outside_symbols(grammar, typed)
    space = Space([*((("inside", l), n) for l in range(L)), *((("outside", l), n) for l in range(L)), ("constant", 1)],
                  unions={"outside": (("outside", 0), ("outside", L - 1))})
    positions = relative_positions(L, n, bound)
    roots = [np.where(np.isin(everything, narrow if l == 0 else wide), grammar.root, 0.0) for l in range(L)]

    rules = inside_matrices(grammar, interminals, everything, everything)
    layers = [inside_layer(space, positions, l, rules, unit_columns(interminals, n), bound) for l in range(1, L)]
    layers.append(root_layer(space, positions, roots))
    for children, offsets in ((wide, range(L - 2, 0, -1)), (narrow, range(min(L - 2, 0), -1, -1))):
        left = left_sibling_matrices(grammar, children, everything, everything)
        right = right_sibling_matrices(grammar, children, everything, everything)
        layers += [outside_layer(space, positions, l, left, right, unit_columns(children, n), bound) for l in offsets]
    constant = space["constant"].start
    return Plan(
        space=space, layers=tuple(layers), leaf_blocks=(("inside", 0),), leaf_symbols=everything,
        position_rows=((constant,), *((constant, mark(space, i)) for i in range(1, L + 1))),
        inside=Readout(tuple(("inside", l) for l in range(L)), (everything,) * L, row=lambda i, j: j),
        outside=Readout(tuple(("outside", l) for l in range(L)), (everything,) * L, row=lambda i, j: i),
        n_before=1, n_after=0)


def relative_positions(L: int, n: int, bound: float) -> RelativePositions:
    """p_t: M on key block -t-1 for t < 0, on key block L+t-1 for t > 0; p_0 = 0."""
    keys = Space([*((s, n) for s in range(2 * L)), ("constant", 1)])
    table = np.zeros((2 * L + 1, 2 * L + 1))
    for t in range(1, L + 1):
        table[L - t, t - 1] = bound
        table[L + t, L + t - 1] = bound
    return RelativePositions(keys, table)


def inside_layer(space: Space, positions: RelativePositions, l: int, rules: HeadMatrices, writes: HeadMatrices,
                 bound: float) -> LayerWeights:
    """Layer l: inside probabilities of every span of offset l, one head for each in-terminal A.

    Token i attends to the ends j of left children, i-l <= j <= i-1.  At t = j-i the open key block is s = -t-1; there
    the key holds a(i-l, j) and the query meets it with its own a(j+1, i):  sum_BC P_A[B,C] a_B(i-l, j) a_C(j+1, i).
    """
    shifts = np.arange(len(positions.table)) - positions.max_shift
    heads = RelativeHeads(
        keys=tuple(Key(s, ("inside", l - 1 - s)) for s in range(l)),
        queries=tuple(Query(s, ("inside", s), rules) for s in range(l)),
        values=(HeadValue(("inside", l), writes, "constant", np.ones((1, 1))),))
    return LayerWeights(("inside", l + 1), space, (heads,), positions,
                        bias=np.where((shifts >= -l) & (shifts <= -1), bound, 2 * bound))


def outside_layer(space: Space, positions: RelativePositions, l: int, left_sibling: HeadMatrices,
                  right_sibling: HeadMatrices, writes: HeadMatrices, bound: float) -> LayerWeights:
    """Layer 2L-1-l: outside probabilities of every span of offset l, one head for each symbol A.

    Token i writes for the span (i+1, i+1+l).  Its head sums both kinds of parent, which never meet at one shift:
    t = -1-s < 0:      A is a right child; the key holds b(j+1, i+1+l) of the parent, the query a(j+1, i) of the left
                       sibling, which ends at i;
    t = l+2+m > l+1:   A is a left child; the key holds a(i+2+l, j) of the right sibling, which ends at j, the query
                       b(i+1, j) of the parent.
    """
    L = positions.max_shift
    shifts = np.arange(2 * L + 1) - L
    siblings = range(L - l - 1)  # offsets of siblings that leave room for a parent of at most L words
    heads = RelativeHeads(
        keys=(*(Key(s, ("outside", l + 1 + s)) for s in siblings),
              *(Key(L + l + 1 + m, ("inside", m)) for m in siblings)),
        queries=(*(Query(s, ("inside", s), left_sibling) for s in siblings),
                 *(Query(L + l + 1 + m, ("outside", l + 1 + m), right_sibling) for m in siblings)),
        values=(HeadValue(("outside", l), writes, "constant", np.ones((1, 1))),))
    return LayerWeights(("outside", l + 1), space, (heads,), positions,
                        bias=np.where((shifts >= 0) & (shifts <= l + 1), 2 * bound, bound))


def root_layer(space: Space, positions: RelativePositions, roots: list[np.ndarray]) -> LayerWeights:
    """Layer L: b(1, n) = root distribution, for whatever n the sentence has; then the marks go.

    b_t is 0 at t = 0 and 1 elsewhere, and both heads use the constant alone as key, which p_t does not touch.
    root:   key 2 * constant (so 1 at any other token), query constant - sum of marks (so 1 at BOS, 0 at words).  Word i
            adds the roots to ("outside", i-1) and takes them from ("outside", i-2): the sum telescopes, exactly, to
            ("outside", n-1), without anybody knowing n.
    clear:  key constant, open at t = 0 only: every word subtracts its own mark.
    """
    L = len(roots)
    marks = np.zeros((L, space.width("outside")))  # row i-1 reads the mark of word i
    marks[np.arange(L), [mark(space, i) - space["outside"].start for i in range(1, L + 1)]] = 1
    blocks = [("outside", l) for l in range(L)]
    one = one_head(np.ones((1, 1)))
    root = RelativeHeads(
        keys=(Key("constant", "constant", 2.0),),
        queries=(Query("constant", "constant", one),
                 Query("constant", "outside", one_head(-marks.sum(axis=0, keepdims=True)))),
        values=(HeadValue("outside", telescope(space, "outside", blocks, roots, L, first=0), "outside", marks),))
    clear = RelativeHeads(
        keys=(Key("constant", "constant"),), queries=(Query("constant", "constant", one),),
        values=(HeadValue("outside", one_head(-marks.T), "outside", marks),))
    bias = np.ones(2 * positions.max_shift + 1)
    bias[positions.max_shift] = 0
    return LayerWeights(("root", None), space, (root, clear), positions, bias)


def mark(space: Space, i: int) -> int:
    """The coordinate that is 1 in the embedding of word i (1-based) until layer L."""
    return space["outside", i - 1].start
