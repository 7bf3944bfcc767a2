"""Merged symbols: exact Inside-Outside of a grammar of classes, with as few heads as the approximate models.

Dropping in-terminals leaves most sentences without a parse; merging them (approximation/merging.py) keeps every
sentence, and the merged grammar is a PCFG like any other, so that Theorem 3.2 holds for it as it stands.  What it saves
comes from the two widths of block of approximate_relative.py: with no symbol left out they lose nothing,

    dimensions   2 |I| (L - 1) + 2 |P| + 1    instead of 2 (|I| + |P|) L + 1
    heads        H, for any H                 instead of max(|I|, |P|)
    layers       ceil(|I| / H) (2L - 3) + 1 + ceil(|P| / H)

With the paper's 20 in-terminals and 45 pre-terminals and H = 20: 40L + 51 dimensions and 2L + 1 layers.
"""

from __future__ import annotations

import numpy as np
import torch

from pcfg_artifact.constructions.approximate_relative import Symbols, two_width_plan
from pcfg_artifact.constructions.transformer import BOUND, ConstructedTransformer
from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG

ROOT_HEADS = 2  # of the layer that writes the root: fewer heads are not possible


class MergedInsideOutside(ConstructedTransformer):
    """The transformer of Theorem 3.2 for a small grammar, such as `merge_symbols` gives: all symbols, n_heads heads.

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


def claimed_sizes(n_interminals: int, n_preterminals: int, L: int, n_heads: int) -> dict[str, int]:
    """What the table above says, for sentences of up to L >= 2 words."""
    layers = -(-n_interminals // n_heads) * (2 * L - 3) + 1 + -(-n_preterminals // n_heads)
    return {"layers": layers, "heads": min(n_heads, max(n_interminals, n_preterminals, ROOT_HEADS)),
            "dimensions": 2 * n_interminals * (L - 1) + 2 * n_preterminals + 1}
