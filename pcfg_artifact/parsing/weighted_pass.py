"""Inside and outside of a padded batch in torch, with the derivative of the log weight by every rule, leaf and root.

Legend.  B sentences, S starts of one width, K splits, N symbols, I in-terminals, P pre-terminals, R rules.  A cell has
log m of its largest inside value and a = alpha / m, so that no product leaves the range of the numbers; the outside
value of a cell is kept as b = beta m / Z, so that a b is the marginal.  Then, with Z the weight of the sentence,

    d log Z / d w(A -> B C) = sum over i < k < j of  b(A,i,j) a(B,i,k) a(C,k,j) m(i,k) m(k,j) / m(i,j)

and likewise for leaves and root: the outside pass is the gradient, and nothing is taped.
"""

from __future__ import annotations

import numpy as np
import torch

from pcfg_artifact.grammar.pcfg import PCFG

DENSE = 0.05  # share of all (parent, left, right) from which on rules are multiplied as a matrix


class RuleShape:
    """Which rules there are: children and parents of the binary ones, in the grammar's order, on one device."""

    def __init__(self, grammar: PCFG, device: torch.device) -> None:
        self.n_interminals, self.n_symbols = grammar.n_interminals, grammar.n_nonterminals
        parent, left, right = (torch.as_tensor(x.astype(np.int64), device=device) for x in grammar.binary.T)
        self.parent, self.pair = parent, left * self.n_symbols + right
        self.is_dense = len(parent) > DENSE * self.n_interminals * self.n_symbols ** 2
        if not self.is_dense:  # only the pairs that some rule has
            pairs, self.pair = torch.unique(self.pair, return_inverse=True)
            self.left, self.right = pairs // self.n_symbols, pairs % self.n_symbols

    def pairs(self, left_BSKN: torch.Tensor, right_BSKN: torch.Tensor) -> torch.Tensor:
        """(B, S, Q) sum over splits of left times right, for every pair of children."""
        if self.is_dense:
            return torch.einsum("bskl,bskr->bslr", left_BSKN, right_BSKN).flatten(2)
        return (left_BSKN[..., self.left] * right_BSKN[..., self.right]).sum(2)

    def parents(self, weights_R: torch.Tensor, pairs_BSQ: torch.Tensor) -> torch.Tensor:
        """(B, S, I) what rules make of pairs."""
        if self.is_dense:
            return pairs_BSQ @ self._matrix(weights_R)
        shape = (*pairs_BSQ.shape[:2], self.n_interminals)
        return pairs_BSQ.new_zeros(shape).index_add(2, self.parent, pairs_BSQ[..., self.pair] * weights_R)

    def children(self, weights_R: torch.Tensor, parents_BSI: torch.Tensor, left_BSKN: torch.Tensor,
                 right_BSKN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, S, K, N) twice: what parents give left children beside `right`, and right ones beside `left`."""
        if self.is_dense:
            given = (parents_BSI @ self._matrix(weights_R).T).unflatten(2, (self.n_symbols, self.n_symbols))
            return torch.einsum("bslr,bskr->bskl", given, right_BSKN), torch.einsum("bslr,bskl->bskr", given, left_BSKN)
        shape = (*parents_BSI.shape[:2], len(self.left))
        given = parents_BSI.new_zeros(shape).index_add(2, self.pair, parents_BSI[..., self.parent] * weights_R)
        zeros = torch.zeros_like(left_BSKN)
        return (zeros.index_add(3, self.left, given[:, :, None] * right_BSKN[..., self.right]),
                zeros.index_add(3, self.right, given[:, :, None] * left_BSKN[..., self.left]))

    def by_rule(self, parents_BSI: torch.Tensor, pairs_BSQ: torch.Tensor) -> torch.Tensor:
        """(B, R) sum over cells of parent times pair, for every rule."""
        if self.is_dense:
            return torch.einsum("bsi,bsq->biq", parents_BSI, pairs_BSQ)[:, self.parent, self.pair]
        return (parents_BSI[..., self.parent] * pairs_BSQ[..., self.pair]).sum(1)

    def _matrix(self, weights_R: torch.Tensor) -> torch.Tensor:
        """(Q, I)"""
        matrix = weights_R.new_zeros(self.n_symbols ** 2, self.n_interminals)
        matrix[self.pair, self.parent] = weights_R
        return matrix


class WeightedPass:
    """One batch.  leaves (B, longest, P), 0 after the end of a sentence; by width: a[w] (B, S, N), log_m[w] (B, S)."""

    def __init__(self, shape: RuleShape, root: torch.Tensor, binary: torch.Tensor, leaves: torch.Tensor,
                 lengths: list[int]) -> None:
        self.shape, self.root, self.binary, self.lengths = shape, root, binary, lengths
        self.longest = leaves.shape[1]
        self.a: dict[int, torch.Tensor] = {}
        self.log_m: dict[int, torch.Tensor] = {}
        self.is_empty: dict[int, torch.Tensor] = {}
        words = torch.cat([leaves.new_zeros(*leaves.shape[:2], shape.n_interminals), leaves], dim=2)
        self._keep(1, words, leaves.new_zeros(leaves.shape[:2]))
        for width in range(2, self.longest + 1):
            left, right, log_factors, is_empty = self._splits(width)
            largest = log_factors.masked_fill(is_empty, -torch.inf).amax(2)
            largest = torch.where(largest.isinf(), log_factors.amax(2), largest)
            pairs = shape.pairs(left * self._exp(log_factors - largest[..., None])[..., None], right)
            parents = shape.parents(binary, pairs)
            self._keep(width, torch.cat([parents, parents.new_zeros(*parents.shape[:2], leaves.shape[2])], 2), largest)
        self.top = torch.stack([self.a[n][s, 0] for s, n in enumerate(lengths)])
        self.share = self.top @ root  # Z / m of the whole sentence
        log_m = torch.stack([self.log_m[n][s, 0] for s, n in enumerate(lengths)])
        self.log_weights = torch.log(self.share) + log_m

    def _keep(self, width: int, values: torch.Tensor, log_factor: torch.Tensor) -> None:
        peak = values.amax(2)
        # An empty cell has an m too, of its children: a rule of weight 0 that could fill it has a derivative.
        self.is_empty[width] = peak <= 0
        peak = torch.where(peak > 0, peak, 1.0)
        self.a[width] = values / peak[..., None]
        self.log_m[width] = torch.log(peak) + log_factor

    def _splits(self, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Left and right children (B, S, K, N) of every cell of a width; of each split (B, S, K) the log of their m's
        product, and whether one of them is empty."""
        n = self.longest - width + 1
        both = [(k, slice(0, n), width - k, slice(k, k + n)) for k in range(1, width)]
        return (torch.stack([self.a[k][:, here] for k, here, _, _ in both], 2),
                torch.stack([self.a[k][:, there] for _, _, k, there in both], 2),
                torch.stack([self.log_m[k][:, here] + self.log_m[j][:, there] for k, here, j, there in both], 2),
                torch.stack([self.is_empty[k][:, here] | self.is_empty[j][:, there] for k, here, j, there in both], 2))

    @staticmethod
    def _exp(logs: torch.Tensor) -> torch.Tensor:
        """exp, kept far from the largest number: only splits with an empty child come near it."""
        return torch.exp(logs.clamp(max=np.log(torch.finfo(logs.dtype).max) / 4))

    def outside(self) -> None:
        """b[w] (B, S, N), and derivatives of the log weights: by_root (B, N), by_rule (B, R), by_leaf (B, longest, P).

        A sentence without weight has derivatives of 0.
        """
        n_interminals = self.shape.n_interminals
        self.b = {width: torch.zeros_like(a) for width, a in self.a.items()}
        one_over = torch.where(self.share > 0, 1.0 / torch.where(self.share > 0, self.share, 1.0), 0.0)
        self.by_root = self.top * one_over[:, None]
        for s, length in enumerate(self.lengths):
            self.b[length][s, 0] = self._typed(self.root, length) * one_over[s]
        self.by_rule = torch.zeros(len(self.lengths), len(self.binary), dtype=self.top.dtype, device=self.top.device)
        for width in range(self.longest, 1, -1):
            n = self.longest - width + 1
            left, right, log_factors, _ = self._splits(width)
            factors = self._exp(log_factors - self.log_m[width][..., None])[..., None]
            parents = self.b[width][..., :n_interminals]
            self.by_rule += self.shape.by_rule(parents, self.shape.pairs(left * factors, right))
            to_left, to_right = self.shape.children(self.binary, parents, left * factors, right * factors)
            for k in range(1, width):
                self.b[k][:, :n] += self._typed(to_left[:, :, k - 1], k)
                self.b[width - k][:, k:k + n] += self._typed(to_right[:, :, k - 1], width - k)
        self.by_leaf = self.b[1][..., n_interminals:] * torch.exp(-self.log_m[1])[..., None]

    def _typed(self, values: torch.Tensor, width: int) -> torch.Tensor:
        """Zero for symbols that cannot stand over a span of this width."""
        typed = torch.zeros_like(values)
        symbols = slice(self.shape.n_interminals, None) if width == 1 else slice(0, self.shape.n_interminals)
        typed[..., symbols] = values[..., symbols]
        return typed
