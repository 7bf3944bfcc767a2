"""Theorem 3.1: hard attention with one-hot positions runs Inside-Outside in 2L-1 layers.

Tokens [BOS, w_1 .. w_n, EOS] at positions 0 .. n+1.  With the paper's inclusive spans and offset l = j - i, the token
at position q holds (the fence-post layout)

    ("inside_start", l)    a(q, q+l)          the span of offset l that starts at q
    ("inside_end", l)      a(q-l, q)          the span that ends at q
    ("outside_start", l)   b(q+1, q+1+l)      the span that starts right after q
    ("outside_end", l)     b(q-1-l, q-1)      the span that ends right before q
    "position"             one-hot of q

Positions take no coordinates beyond the claimed L.  No word stands at positions 0 (BOS) and L+1 (EOS of the longest
sentence), and a span of L words, L > 1, is headed by no pre-terminal: ("inside_end", L-1), which no head reads, ends
with coordinates that are 0 in every word, and there those two positions are marked (the block "borders").

The score is ReLU(e_j . Q e_i).  A head is meant for one partner, j = i + shift: its block between positions is 0 there
and -zeta elsewhere, so every other score is cut off by the ReLU.  Between a span's two ends all split points are in
view at once: the start knows every left child, the end every right child, and Q multiplies them.  Everything is kept
at both ends because either end will later be a partner.  Outside probabilities lie one step outside their span, where
its siblings end: the paper's "move" is not needed, and both kinds of parent fit in one score.

The sum of the position coordinates is 1 for every token; compute heads read it: V_h = u_A (x) sum of positions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
    HardHeads,
    HeadMatrices,
    HeadValue,
    LayerWeights,
    Query,
    telescope,
    unit_columns,
)
from pcfg_artifact.grammar.pcfg import PCFG

BLOCKS = ("inside_start", "inside_end", "outside_start", "outside_end")


class HardAttentionInsideOutside(ConstructedTransformer):
    """The transformer of Theorem 3.1; typed, bound (here zeta) and rescale as in RelativeInsideOutside."""

    def __init__(self, grammar: PCFG, max_length: int = 25, *, typed: bool = True, bound: float = BOUND,
                 backend: str = "auto", dtype: torch.dtype = torch.float64, rescale: bool = False) -> None:
        super().__init__(grammar, max_length, hard_plan(grammar, max_length, typed=typed, zeta=bound),
                         backend=backend, dtype=dtype, rescale=rescale)


def claimed_sizes(n: int, L: int) -> dict[str, int]:
    """What Theorem 3.1 says for n non-terminals and sentences of up to L words."""
    return {"layers": 2 * L - 1, "heads": 4 * n, "dimensions": (4 * n + 1) * L}


def hard_plan(grammar: PCFG, max_length: int, *, typed: bool = True, zeta: float = BOUND) -> Plan:
    """All weights of Theorem 3.1, layer by layer in the order of the argument."""
    L, n = checked_length(max_length), grammar.n_nonterminals
    everything, interminals = np.arange(n), np.arange(grammar.n_interminals)
    wide, narrow = outside_symbols(grammar, typed)
    space = hard_space(n, L, n_borders=min(2, grammar.n_preterminals) if L > 1 else 0)
    at = partial(at_shift, L + 2, zeta)
    roots = [np.where(np.isin(everything, narrow if l == 0 else wide), grammar.root, 0.0) for l in range(L)]

    rules = inside_matrices(grammar, interminals, everything, everything)
    flipped, writes = rules.transposed(), unit_columns(interminals, n)
    layers = [inside_layer(space, l, rules, flipped, writes, at) for l in range(1, L)]
    layers.append(LayerWeights(("root", None), space, root_heads(space, roots, zeta)))
    for children, offsets in ((wide, range(L - 2, 0, -1)), (narrow, range(min(L - 2, 0), -1, -1))):
        left = left_sibling_matrices(grammar, children, everything, everything)
        right = right_sibling_matrices(grammar, children, everything, everything)
        matrices = (left, left.transposed(), right, right.transposed())
        layers += [outside_layer(space, l, L, matrices, unit_columns(children, n), at) for l in offsets]
    position = space["position"].start
    return Plan(
        space=space, layers=tuple(layers), leaf_blocks=(("inside_start", 0), ("inside_end", 0)),
        leaf_symbols=everything, position_rows=tuple((position + (q + 1) % (L + 2),) for q in range(L + 2)),
        inside=Readout(tuple(("inside_start", l) for l in range(L)), (everything,) * L, row=lambda i, j: i + 1),
        outside=Readout(tuple(("outside_start", l) for l in range(L)), (everything,) * L, row=lambda i, j: i),
        n_before=1, n_after=1)


def hard_space(n: int, L: int, n_borders: int) -> Space:
    """The residual stream.  Coordinates of "position" are those of L+1, 0, 1, .. L, and the first `n_borders` of them
    are the last of ("inside_end", L-1)."""
    inside = [(name, l) for name in BLOCKS[:2] for l in range(L)]
    outside = [(name, l) for name in BLOCKS[2:] for l in range(L)]
    return Space([*((name, n) for name in inside[:-1]), ("last", n - n_borders), ("borders", n_borders),
                  ("places", L + 2 - n_borders), *((name, n) for name in outside)],
                 unions={"position": ("borders", "places"), inside[-1]: ("last", "borders"),
                         **{name: ((name, 0), (name, L - 1)) for name in BLOCKS if name != "inside_end"}})


def at_shift(n_positions: int, zeta: float, shift: int, score: float = 0.0) -> np.ndarray:
    """`only_at` between the coordinates of positions."""
    return rotated(only_at(n_positions, shift, zeta, score))


def rotated(block: np.ndarray) -> np.ndarray:
    """[key position, query position] -> [key coordinate, query coordinate]."""
    return np.roll(block, 1, axis=(0, 1))


def only_at(n_positions: int, shift: int, zeta: float, score: float = 0.0) -> np.ndarray:
    """[key position, query position]: `score` where key = query + shift, -zeta elsewhere."""
    block = np.full((n_positions, n_positions), -zeta)
    query = np.arange(max(0, -shift), min(n_positions, n_positions - shift))
    block[query + shift, query] = score
    return block


def write_score(space: Space, target: tuple[str, int], writes: HeadMatrices) -> tuple[HeadValue, ...]:
    return (HeadValue(target, writes, "position", np.ones((1, space.width("position")))),)


def inside_layer(space: Space, l: int, rules: HeadMatrices, flipped: HeadMatrices, writes: HeadMatrices,
                 at: Callable[[int], np.ndarray]) -> LayerWeights:
    """Layer l: a(i, i+l), once at its start and once at its end; two heads for each in-terminal A.

    Offsets of left and right child sum to l - 1.  At the start, the query holds the left children, and the key, at the
    end, the right ones, so the block is P_A transposed; at the end it is P_A.  at(shift): the heads' position block.
    """
    splits = [(left, l - 1 - left) for left in range(l)]
    start = HardHeads(
        queries=tuple(Query(("inside_end", right), ("inside_start", left), flipped) for left, right in splits),
        position=at(l), values=write_score(space, ("inside_start", l), writes))
    end = HardHeads(
        queries=tuple(Query(("inside_start", left), ("inside_end", right), rules) for left, right in splits),
        position=at(-l), values=write_score(space, ("inside_end", l), writes))
    return LayerWeights(("inside", l + 1), space, (start, end))


def root_heads(space: Space, roots: list[np.ndarray], zeta: float) -> tuple[HardHeads, ...]:
    """Layer L: b(1, n) = root distribution at BOS and at EOS, for whatever n the sentence has.  Three heads.

    at BOS:   BOS attends to everybody; the token at position t adds the roots to offset t-2 and takes them from offset
              t-3: the sum telescopes to offset n-1, because the last token is EOS at n+1.
    at EOS:   every token adds the roots to offset t-2 of itself, and takes away what its successor would add to offset
              (t+1)-3, the same: only the token without a successor, EOS, keeps them.
    """
    n_positions, L = space.width("position"), len(roots)

    def roots_at(name: str, **which: bool) -> tuple[HeadValue, ...]:
        matrices = telescope(space, name, [(name, l) for l in range(L)], roots, n_positions, first=2, **which)
        return (HeadValue(name, matrices, "position", np.roll(np.eye(n_positions), 1, axis=1)),)

    from_bos = np.full((n_positions, n_positions), -zeta)
    from_bos[:, 0] = 1
    return (HardHeads((), rotated(from_bos), roots_at("outside_start")),
            HardHeads((), at_shift(n_positions, zeta, 0, score=1), roots_at("outside_end", is_taken=False)),
            HardHeads((), at_shift(n_positions, zeta, 1, score=1), roots_at("outside_end", is_added=False)))


def outside_layer(space: Space, l: int, L: int, matrices: tuple[HeadMatrices, ...], writes: HeadMatrices,
                  at: Callable[[int], np.ndarray]) -> LayerWeights:
    """Layer 2L-1-l: outside probabilities of every span of offset l, kept on both sides of it; two heads for each A.

    The two sides are l + 2 apart.  A sibling of offset m ends at one side (left sibling) or starts at the other (right
    sibling), and the parent of offset l+1+m lies across: both terms are products between the same two tokens.
    """
    left, left_flipped, right, right_flipped = matrices
    siblings = [(m, l + 1 + m) for m in range(L - l - 1)]
    start = HardHeads(
        queries=(*(Query(("outside_end", p), ("inside_end", m), left) for m, p in siblings),
                 *(Query(("inside_start", m), ("outside_start", p), right) for m, p in siblings)),
        position=at(l + 2), values=write_score(space, ("outside_start", l), writes))
    end = HardHeads(
        queries=(*(Query(("inside_end", m), ("outside_end", p), left_flipped) for m, p in siblings),
                 *(Query(("outside_start", p), ("inside_start", m), right_flipped) for m, p in siblings)),
        position=at(-(l + 2)), values=write_score(space, ("outside_end", l), writes))
    return LayerWeights(("outside", l + 1), space, (start, end))
