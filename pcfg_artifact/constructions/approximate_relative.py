"""The approximate models: few non-terminals, a low-rank transform of their probabilities, and merged symbols.

Only the in-terminals I~ and, on single words, the pre-terminals P~ are computed; a word's inside probabilities are kept
for Pc, the pre-terminals that occur under I~.  Tokens, marks and the argument are those of Theorem 3.2 (relative.py);
its blocks now have two widths, |Pc| for single words and |I~| for the rest, and one p_t over equal blocks cannot gate
them.  The key therefore has its own space:

    ("F", s)   s = 0 .. L-2, |I~| wide: opened at t = -s-1
    ("G", s)   s = 1 .. L-1, |I~| wide: opened at t = s+1
    "Z"        |Pc| wide: a single word as the child or sibling in the key, needed at exactly one t in each layer

p_t is M on the F or G that it opens, -M on the others and 0 on Z.  b_t is M at the shifts where an F or G should pass
(M - M = 0, the rest -2M, Z -M), 0 at the one shift where Z should pass (Z 0, the rest -M), 2M at shifts that see
nothing.  At the shift of Z the block with p_t = M has no key in that layer: its rows of Q are 0, what it holds is lost.

Low rank: the |I~| heads of a layer become k, head r with Q = sum_A W[r,A] Q_A and the target sum_A W+[A,r] u_A: the
stream then holds W+ W a instead of a, with no further layer and no further dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from pcfg_artifact.approximation.restriction import select_symbols
from pcfg_artifact.approximation.transforms import (
    Correlations,
    SignRule,
    Transforms,
    clip,
    inverse_of,
    rule_named,
    transform_of_width,
)
from pcfg_artifact.constructions.relative import mark, root_layer
from pcfg_artifact.constructions.rules import inside_matrices, left_sibling_matrices, right_sibling_matrices
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
    unit_columns,
)
from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.parsing.engine import inside_outside

N_DRAWN = 400  # sentences from which a model without given transforms learns its own
ROOT_HEADS = 2  # of the layer that writes the root: fewer heads are not possible


class ApproximateInsideOutside(ConstructedTransformer):
    """Inside-Outside over the most frequent symbols; with `rank`, through transforms W of that rank.

    transforms: {width: W (rank, |I~|)}, columns in the order of `select_symbols`; a missing width uses the nearest
    smaller one; None learns them from sentences that the grammar itself generates.  rank=None computes the few
    non-terminals themselves.  sign_rule: see approximation/transforms.py.
    """

    def __init__(self, grammar: PCFG, max_length: int = 25, n_interminals: int = 20, n_preterminals: int = 45,
                 rank: int | None = 15, sign_rule: str = "clip", transforms: Transforms | None = None, *,
                 bound: float = BOUND, backend: str = "auto", dtype: torch.dtype = torch.float64,
                 rescale: bool = False) -> None:
        interminals, preterminals = select_symbols(grammar, n_interminals, n_preterminals)
        if rank is not None and not 1 <= rank <= len(interminals):
            raise UsageError(f"rank {rank} does not fit {len(interminals)} in-terminals; expected 1 to "
                             f"{len(interminals)}, or None for no projection")
        if rank == len(interminals):
            rank = None  # W+ W is the identity; computing it would only add rounding noise
        if rank is not None and transforms is None:
            transforms = sampled_transforms(grammar, interminals, rank, max_length)
        for width, transform in (transforms or {}).items() if rank is not None else ():
            if np.shape(transform) != (rank, len(interminals)):
                raise UsageError(f"the transform of width {width} has shape {np.shape(transform)}, "
                                 f"expected {(rank, len(interminals))}")
        plan = approximate_plan(grammar, max_length, interminals, preterminals, None if rank is None else transforms,
                                rule_named(sign_rule), bound)
        super().__init__(grammar, max_length, plan, backend=backend, dtype=dtype, rescale=rescale)
        self.interminals, self.preterminals, self.rank, self.sign_rule = interminals, preterminals, rank, sign_rule
        self.transforms = transforms if rank is not None else None


def claimed_sizes(n_interminals: int, rank: int | None, L: int) -> dict[str, int]:
    """What Theorem 3.4 says; the paper's 275 + 40L dimensions are those of its 20 in-terminals and 45 pre-terminals."""
    return {"layers": 2 * L + 1, "heads": rank or n_interminals, "dimensions": 275 + 2 * n_interminals * L}


class MergedInsideOutside(ConstructedTransformer):
    """The transformer of Theorem 3.2 for a small grammar, such as `merge_symbols` gives: all symbols, n_heads heads.

    Dropping in-terminals leaves most sentences without a parse; merging them keeps every sentence, and the merged
    grammar is a PCFG like any other, so that Theorem 3.2 holds for it as it stands.  What it saves comes from the two
    widths of block: with no symbol left out they lose nothing,

        dimensions   2 |I| (L - 1) + 2 |P| + 1    instead of 2 (|I| + |P|) L + 1
        heads        H, for any H                 instead of max(|I|, |P|)
        layers       ceil(|I| / H) (2L - 3) + 1 + ceil(|P| / H)

    With the paper's 20 in-terminals and 45 pre-terminals and H = 20: 40L + 51 dimensions and 2L + 1 layers.

    n_heads: at most so many in a layer, one for each in-terminal unless given; fewer heads take more layers.
    """

    def __init__(self, grammar: PCFG, max_length: int = 25, n_heads: int | None = None, *, bound: float = BOUND,
                 backend: str = "auto", dtype: torch.dtype = torch.float64, rescale: bool = False) -> None:
        n_heads = max(grammar.n_interminals, ROOT_HEADS) if n_heads is None else n_heads
        if n_heads < ROOT_HEADS:
            raise UsageError(f"{n_heads} heads were asked for, expected at least {ROOT_HEADS}: the root takes them")
        preterminals = np.arange(grammar.n_interminals, grammar.n_nonterminals)
        symbols = Symbols(np.arange(grammar.n_interminals), preterminals, preterminals, grammar.root[preterminals])
        super().__init__(grammar, max_length, two_width_plan(grammar, max_length, symbols, n_heads, bound=bound),
                         backend=backend, dtype=dtype, rescale=rescale)


def merged_sizes(n_interminals: int, n_preterminals: int, L: int, n_heads: int) -> dict[str, int]:
    """What MergedInsideOutside says, for sentences of up to L >= 2 words."""
    layers = -(-n_interminals // n_heads) * (2 * L - 3) + 1 + -(-n_preterminals // n_heads)
    return {"layers": layers, "heads": min(n_heads, max(n_interminals, n_preterminals, ROOT_HEADS)),
            "dimensions": 2 * n_interminals * (L - 1) + 2 * n_preterminals + 1}


def approximate_plan(grammar: PCFG, max_length: int, interminals: np.ndarray, preterminals: np.ndarray,
                     transforms: Transforms | None, rule: SignRule, bound: float = BOUND) -> Plan:
    """All weights, layer by layer: L-1 inside, one for the root, L-2 outside, ceil(|P~|/H) for single words."""
    symbols = Symbols(interminals, leaf_symbols(grammar, interminals), preterminals, np.zeros(len(preterminals)))
    n_heads = len(interminals) if transforms is None else len(next(iter(transforms.values())))
    return two_width_plan(grammar, max_length, symbols, n_heads, transforms, rule, bound)


@dataclass(frozen=True, eq=False)
class Symbols:
    """What a construction with blocks of two widths computes: `interminals` on two and more words; on single words the
    inside probabilities of `leaves` and the outside ones of `preterminals`, which are `word_root` if it is alone."""

    interminals: np.ndarray
    leaves: np.ndarray
    preterminals: np.ndarray
    word_root: np.ndarray


def two_width_plan(grammar: PCFG, max_length: int, symbols: Symbols, n_heads: int, transforms: Transforms | None = None,
                   rule: SignRule = clip, bound: float = BOUND) -> Plan:
    """All weights with at most `n_heads` heads a layer (two for the root): where a width has more symbols, several
    layers compute it, since none of them reads what another writes."""
    L = checked_length(max_length)
    interminals, preterminals = symbols.interminals, symbols.preterminals
    children = [symbols.leaves] + [interminals] * (L - 1)  # of the inside block of every offset
    space = Space([*((("inside", l), len(children[l])) for l in range(L)),
                   *((("outside", l), len(interminals)) for l in range(1, L)), (("outside", 0), len(preterminals)),
                   ("constant", 1)], unions={"outside": (("outside", min(1, L - 1)), ("outside", 0))})
    positions = approximate_positions(L, len(interminals), len(symbols.leaves), bound)
    roots = [symbols.word_root] + [grammar.root[interminals]] * (L - 1)  # cut to I~, not renormalised
    projected = None if transforms is None else [None] + [transform_of_width(transforms, l + 1) for l in range(1, L)]

    def parts(l: int) -> Iterator[slice]:
        """The symbols of a layer; W mixes all of them in each head."""
        n = len(interminals) if l else len(preterminals)
        step = n if projected is not None and l else n_heads
        return (slice(first, min(first + step, n)) for first in range(0, n, step))

    layers = []
    for l in range(1, L):
        for part in parts(l):
            heads = inside_heads(grammar, l, interminals[part], children)
            layers.append(layer_of(space, positions, l, heads, part, ("inside", l), inside_bias(L, l, bound),
                                   projected, rule))
    layers.append(root_layer(space, positions, roots))
    for l in range(L - 2, -1, -1):
        for part in parts(l):
            heads = outside_heads(grammar, l, L, (interminals if l else preterminals)[part], interminals, children)
            layers.append(layer_of(space, positions, l, heads, part, ("outside", l), outside_bias(L, l, bound),
                                   projected, rule))
    constant = space["constant"].start
    return Plan(
        space=space, layers=tuple(layers), leaf_blocks=(("inside", 0),), leaf_symbols=symbols.leaves,
        position_rows=((constant,), *((constant, mark(space, i)) for i in range(1, L + 1))),
        inside=Readout(tuple(("inside", l) for l in range(L)), tuple(children), row=lambda i, j: j),
        outside=Readout(tuple(("outside", l) for l in range(L)), (preterminals, *children[1:]), row=lambda i, j: i),
        n_before=1, n_after=0)


def sampled_transforms(grammar: PCFG, interminals: np.ndarray, rank: int, max_length: int) -> Transforms:
    """W of every width from exact marginals of sentences drawn from the grammar."""
    drawn = sample_trees(grammar, N_DRAWN, seed=0, max_length=max_length).tokens
    correlations = Correlations(interminals, max_length)
    for chart in inside_outside(grammar, list(drawn.rows())):
        correlations.add(chart)
    return correlations.transforms(rank)


def leaf_symbols(grammar: PCFG, interminals: np.ndarray) -> np.ndarray:
    """Pc: ids of the pre-terminals that occur as a child in some rule of the in-terminals."""
    children = np.unique(grammar.binary[np.isin(grammar.binary[:, 0], interminals), 1:])
    return children[children >= grammar.n_interminals]


def approximate_positions(L: int, n_interminals: int, n_leaves: int, bound: float) -> RelativePositions:
    keys = Space([*((("F", s), n_interminals) for s in range(L - 1)), *((("G", s), n_interminals) for s in range(1, L)),
                  ("Z", n_leaves), ("constant", 1)])
    table = np.zeros((2 * L + 1, len(keys.names)))
    for column, name in enumerate(keys.names):
        if isinstance(name, tuple):  # ("F", s) or ("G", s); the others are open at every shift
            kind, s = name
            table[:, column] = -bound
            table[L + (-s - 1 if kind == "F" else s + 1), column] = bound
    return RelativePositions(keys, table)


def inside_bias(L: int, l: int, bound: float) -> np.ndarray:
    """Pass I~ as left child at -l < t < 0, a single word as left child at t = -l."""
    t = np.arange(-L, L + 1)
    return np.select([t == -l, (t > -l) & (t < 0)], [0.0, bound], 2 * bound)


def outside_bias(L: int, l: int, bound: float) -> np.ndarray:
    """Pass parents at t < 0 and right siblings at t > l+2; a single word as right sibling at t = l+2."""
    t = np.arange(-L, L + 1)
    return np.select([t == l + 2, (t < 0) | (t > l + 2)], [0.0, bound], 2 * bound)


KeysAndQueries = tuple[tuple[Key, ...], tuple[Query, ...]]


def inside_heads(grammar: PCFG, l: int, interminals: np.ndarray, symbols: list[np.ndarray]) -> KeysAndQueries:
    """K and Q of layer l for every A in I~; as in Theorem 3.2, except that a left child of one word is keyed in Z."""
    key_of = {s: ("F", s) if s < l - 1 else "Z" for s in range(l)}  # s: offset of the right child
    keys = tuple(Key(key_of[s], ("inside", l - 1 - s)) for s in range(l))
    matrices: dict[tuple[bool, bool], HeadMatrices] = {}
    queries = []
    for s in range(l):
        kinds = (s == l - 1, s == 0)  # is the left child a word, is the right child
        if kinds not in matrices:
            matrices[kinds] = inside_matrices(grammar, interminals, symbols[l - 1 - s], symbols[s])
        queries.append(Query(key_of[s], ("inside", s), matrices[kinds]))
    return keys, tuple(queries)


def outside_heads(grammar: PCFG, l: int, L: int, children: np.ndarray, parents: np.ndarray,
                  symbols: list[np.ndarray]) -> KeysAndQueries:
    """K and Q of the layer for offset l and every A in `children`; m is the offset of the sibling."""
    siblings = range(L - l - 1)
    right_key = {m: ("G", l + 1 + m) if m > 0 else "Z" for m in siblings}
    left = [left_sibling_matrices(grammar, children, parents, symbols[m]) for m in siblings[:2]]
    right = [right_sibling_matrices(grammar, children, symbols[m], parents) for m in siblings[:2]]
    keys = (*(Key(("F", m), ("outside", l + 1 + m)) for m in siblings),
            *(Key(right_key[m], ("inside", m)) for m in siblings))
    queries = (*(Query(("F", m), ("inside", m), left[min(m, 1)]) for m in siblings),
               *(Query(right_key[m], ("outside", l + 1 + m), right[min(m, 1)]) for m in siblings))
    return keys, queries


def layer_of(space: Space, positions: RelativePositions, l: int, heads: KeysAndQueries, part: slice,
             target: tuple[str, int], bias: np.ndarray, projected: list | None, rule: SignRule) -> LayerWeights:
    """The layer whose heads write the coordinates `part` of `target`, or all of them, mixed by W, and its sign rule."""
    keys, queries = heads
    transform = projected[l] if projected is not None else None
    if transform is not None:
        mixed = {id(q.matrices): q.matrices.mixed(transform) for q in queries}
        queries = tuple(Query(q.key, q.source, mixed[id(q.matrices)]) for q in queries)
        writes = HeadMatrices.from_dense(inverse_of(transform).T[:, :, None])
    else:
        writes = unit_columns(np.arange(part.start, part.stop), space.width(target))
    one = np.ones((1, 1))
    groups = [RelativeHeads(keys, queries, (HeadValue(target, writes, "constant", one),))]
    if projected is not None and not rule.clips_keys:  # ReLU(x) - ReLU(-x) = x
        negative = tuple(Key(k.key, k.source, -k.scale) for k in keys)
        groups.append(RelativeHeads(negative, queries, (HeadValue(target, writes.negated(), "constant", one),)))
    return LayerWeights((target[0], l + 1), space, tuple(groups), positions, bias,
                        clipped=(target,) if transform is not None and rule.clips_stored else ())
