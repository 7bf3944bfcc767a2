"""The passes over one batch of sentences: which kernel runs on what, width by width.  Nothing here waits for a GPU."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import triton

from pcfg_artifact.parsing.chart_index import n_cells
from pcfg_artifact.parsing.gpu import kernels
from pcfg_artifact.parsing.gpu.row_sums import DeviceRules, Pairs, RowSum, padded

Numbers = TypeVar("Numbers", int, np.ndarray, torch.Tensor)

LN_2 = math.log(2.0)
SPLITS = 4  # that a program multiplies at once
FUSED = True  # a product and a sum in one rounding; said, because the default of Triton changes from 3.9 to 3.10


class Form(NamedTuple):
    """How numbers are kept: mantissas of a type, and an exponent a row (range as in kernels.py)."""

    dtype: torch.dtype
    bias: int
    tiny: float
    smallest: float


# Two values of 2^bias multiplied, and summed over thousands of terms, do not overflow; what the largest value of a row
# is above the smallest that it may have: 2^1400 and 2^168.
FORMS = {"float64": Form(torch.float64, 400, 2.0 ** -960, 2.0 ** -1000),
         "float32": Form(torch.float32, 50, 2.0 ** -100, 2.0 ** -118)}


class Blocks(NamedTuple):
    """Cells, pairs and symbols of a program; they do not change any bit of any result."""

    cells: int
    sum_cells: int  # of sums over rules
    pairs: int
    symbols: int
    warps: int = 4


GPU_BLOCKS = Blocks(cells=1, sum_cells=4, pairs=128, symbols=128)


def interpreter_blocks(rules: DeviceRules) -> Blocks:
    """Few programs, because each is slow, and no larger than there is work for them."""
    pairs = min(triton.next_power_of_2(max(rules.pairs.n, rules.word_pairs.n, rules.right_edges.n, 1)), 1024)
    return Blocks(cells=64 if pairs <= 128 else 16, sum_cells=64, pairs=pairs,
                  symbols=min(triton.next_power_of_2(rules.row_size), 1024))


def first_of_width(width: Numbers, longest: Numbers | int) -> Numbers:
    """Number of the first cell of a width, where cells run by width, then by start."""
    return (width - 1) * (2 * longest - width + 2) // 2


class Rows(NamedTuple):
    """Rows that a sum reads or writes: their numbers, exponents, how many a sentence has, the first, and their size."""

    values: torch.Tensor
    exponents: torch.Tensor
    per_sentence: int
    first: int
    size: int


class BatchPass:
    """Inside and outside of one batch.  Charts: (N, cells of the longest, row size), with exponents (N, cells)."""

    def __init__(self, rules: DeviceRules, form: Form, blocks: Blocks, leaves: torch.Tensor, lengths: torch.Tensor,
                 forbidden: torch.Tensor | None) -> None:
        """leaves (N, longest, P) float64; lengths (N,) int32; forbidden (N, cells, row size) int8: 1 where it is so."""
        self.rules, self.form, self.blocks, self.lengths, self.forbidden = rules, form, blocks, lengths, forbidden
        self.n_sentences, self.longest, self.n_preterminals = leaves.shape
        self.n_interminals = len(rules.root_inner)
        self.device = leaves.device
        self.n_launches = 0
        self.n_cells = n_cells(self.longest)
        widths = torch.arange(self.longest + 2)
        self.first = first_of_width(widths, self.longest).to(torch.int32).to(self.device)
        self.status = torch.zeros(self.n_sentences, dtype=torch.int32, device=self.device)
        self.alpha, self.exponents = self._chart()
        self._set_leaves(leaves)
        self.right_words, self.left_words = (self._empty(self.longest, words.n_rows)
                                             for words in (rules.right_words, rules.left_words))
        self.scratch = self._empty(self.longest, rules.n_columns)
        self.scratch_exponents = torch.empty(self.n_sentences * self.longest, dtype=torch.int32, device=self.device)

    def _empty(self, n_rows: int, size: int) -> torch.Tensor:
        return torch.empty((self.n_sentences, n_rows, padded(size)), dtype=self.form.dtype, device=self.device)

    def _chart(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._empty(self.n_cells, self.rules.row_size), torch.full(
            (self.n_sentences, self.n_cells), kernels.EMPTY.value, dtype=torch.int32, device=self.device)

    def _set_leaves(self, leaves: torch.Tensor) -> None:
        """Rows of words, whose largest mantissa is brought to 2^bias."""
        peak = leaves.amax(dim=2)
        shift = torch.where(peak > 0, self.form.bias + 1 - torch.frexp(peak).exponent, 0)
        half = shift // 2  # in two steps, because 2^shift may not be a number
        ones = torch.ones_like(peak)
        scaled = leaves * torch.ldexp(ones, half)[..., None] * torch.ldexp(ones, shift - half)[..., None]
        is_lost = ((leaves > 0) & (scaled < self.form.smallest)).flatten(1).any(dim=1)
        self.status |= is_lost.to(torch.int32)
        self.alpha[:, :self.longest, :self.n_preterminals] = scaled.to(self.form.dtype)
        self.exponents[:, :self.longest] = torch.where(peak > 0, -shift, kernels.EMPTY.value)

    # ---- passes ----------------------------------------------------------------------------------------------------

    def inside(self, is_best: bool = False) -> None:
        """alpha of every span; with is_best the probability of the best subtree instead."""
        rules, longest = self.rules, self.longest
        words = Rows(self.alpha, self.exponents, self.n_cells, 0, rules.row_size)
        for weights, row_sum in ((self.right_words, rules.right_words), (self.left_words, rules.left_words)):
            self._sum(row_sum, 1, Rows(weights, self.exponents, longest, 0, weights.shape[2]), words, is_best=is_best)
        for width in range(2, longest + 1):
            pairs, last_u = (rules.word_pairs, 1) if width == 2 else (rules.pairs, width - 2)
            row_sum = rules.word_parents if width == 2 else rules.parents
            products = None
            if width != 3 and pairs.n:
                self._multiply(pairs, width, 1 if width == 2 else 2, last_u, is_best)
                products = self._scratch(width)
            self._sum(row_sum, width, self._row(self.alpha, self.exponents, width), products,
                      edges=(self.alpha, self.exponents, width - 1, width - 1, 0, 1) if width > 2 else None,
                      is_best=is_best)
            self._normalise(self.alpha, self.exponents, width)

    def outside(self, is_pruned: bool) -> None:
        """beta of every span; with is_pruned 0 where alpha is 0."""
        rules, longest = self.rules, self.longest
        self.beta, self.outside_exponents = self._chart()
        beta = self.beta, self.outside_exponents
        narrow = self._first(4) if longest > 3 else self.n_cells  # cells that are no parents of pairs of in-terminals
        given = self._empty(self.n_cells - narrow, rules.pairs.n)
        word_given = self._empty(longest - 1, rules.word_pairs.n)
        for width in range(longest, 1, -1):
            pulled = None
            if longest - width >= 2 and rules.pairs.n:
                self._pull(rules.pairs, given, narrow, width, 2, longest - width, 0, rules.right_column, is_pruned)
                pulled = self._scratch(width)
            self._sum(rules.children, width, self._row(*beta, width), pulled,
                      edges=(*beta, width + 1, width, -1, -1) if width < longest else None, root=rules.root_inner,
                      is_pruned=is_pruned)
            self._normalise(*beta, width)
            if width >= 4:
                self._sum(rules.given, width, Rows(given, self.outside_exponents, self.n_cells - narrow,
                                                   self._first(width) - narrow, given.shape[2]),
                          self._row(*beta, width))
            if width == 2:
                self._sum(rules.word_given, 2, Rows(word_given, self.outside_exponents, longest - 1, 0,
                                                    word_given.shape[2]), self._row(*beta, 2))
        if longest > 1:
            self._pull_edges()
            self._pull(rules.word_pairs, word_given, self._first(2), 1, 1, 1, rules.word_pair_column,
                       rules.word_pair_column + rules.word_right_column, is_pruned)
        self._sum(rules.word_children, 1, self._row(*beta, 1), self._scratch(1) if longest > 1 else None,
                  root=rules.root_leaf, is_pruned=is_pruned)
        self._normalise(*beta, 1)

    def z(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mantissas (N,) float64 and exponents (N,) of Z; a mantissa of 0 where there is no tree."""
        sentence = torch.arange(self.n_sentences, device=self.device)
        width = self.lengths.long()
        cell = first_of_width(width, self.longest)
        top = self.alpha[sentence, cell].double()
        inner, leaf = ((top[:, :len(root)] * root.double()).sum(dim=1)
                       for root in (self.rules.root_inner, self.rules.root_leaf))
        return torch.where(width == 1, leaf, inner), self.exponents[sentence, cell]

    def log_z(self) -> torch.Tensor:
        mantissa, exponent = self.z()
        return torch.log(mantissa) + exponent.double() * LN_2

    def span_scores(self) -> torch.Tensor:
        """(N, cells) max over symbols of the marginals of every span."""
        z, z_exponents = self.z()
        scores = torch.zeros((self.n_sentences, self.n_cells), dtype=torch.float64, device=self.device)
        for width in range(1, self.longest + 1):
            self._launch(kernels.largest_marginals, width, 1, self.blocks.cells, self.alpha, self.exponents, self.beta,
                         self.outside_exponents, self.first, self.lengths, z, z_exponents, scores, self.n_sentences,
                         self.longest, width, self._n_symbols(width), self.rules.row_size, BLOCK_S=self.blocks.symbols)
        return scores

    def leaf_outside(self) -> torch.Tensor:
        """(N, longest, P) beta of every pre-terminal over every word, each row scaled to sum to 1, or 0."""
        values = self.beta[:, :self.longest, :self.n_preterminals].double()
        total = values.sum(dim=2, keepdim=True)
        return torch.where(total > 0, values / total, 0.0)

    # ---- launches --------------------------------------------------------------------------------------------------

    def _first(self, width: int) -> int:
        return first_of_width(width, self.longest)

    def _n_symbols(self, width: int) -> int:
        return self.n_preterminals if width == 1 else self.n_interminals

    def _row(self, chart: torch.Tensor, exponents: torch.Tensor, width: int) -> Rows:
        return Rows(chart, exponents, self.n_cells, self._first(width), self.rules.row_size)

    def _scratch(self, width: int) -> Rows:
        return Rows(self.scratch, self.scratch_exponents, self.longest - width + 1, 0, self.rules.n_columns)

    def _launch(self, kernel: Any, width: int, n_blocks: int, block_cells: int, *args: Any, **constants: Any) -> None:
        n = self.n_sentences * (self.longest - width + 1)
        kernel[triton.cdiv(n, block_cells), n_blocks](*args, **constants, BLOCK_C=block_cells,
                                                      num_warps=self.blocks.warps, enable_fp_fusion=FUSED)
        self.n_launches += 1

    def _multiply(self, pairs: Pairs, width: int, first_u: int, last_u: int, is_best: bool) -> None:
        self._launch(kernels.multiply_pairs, width, triton.cdiv(pairs.n, self.blocks.pairs), self.blocks.cells,
                     self.alpha, self.exponents, self.first, self.lengths, self.status, pairs.left, pairs.right,
                     self.scratch, self.scratch_exponents, self.n_sentences, self.longest, width, first_u, last_u,
                     pairs.n, self.rules.n_columns, self.rules.row_size, TINY=self.form.tiny, IS_BEST=is_best,
                     BLOCK_U=SPLITS, BLOCK_Q=self.blocks.pairs)

    def _sum(self, row_sum: RowSum, width: int, out: Rows, terms: Rows | None,
             edges: tuple[torch.Tensor, torch.Tensor, int, int, int, int] | None = None,
             root: torch.Tensor | None = None, is_pruned: bool = False, is_best: bool = False) -> None:
        """edges: a chart and its exponents, the width of the spans beside the words, and where they lie (sum_rows)."""
        if not row_sum.n_rows:
            return
        is_chart = out.values is self.alpha or out.values is getattr(self, "beta", None)
        term_list = row_sum.lists[0]
        right, left = row_sum.lists[1:] if edges is not None else (term_list, term_list)
        source = terms or out
        values, exponents, *shifts = edges if edges is not None else (self.alpha, self.exponents, 0, 0, 0, 0)
        self._launch(
            kernels.sum_rows, width, row_sum.n_slices, self.blocks.sum_cells, out.values, out.exponents, self.first,
            self.lengths, self.status, row_sum.symbol, term_list.first, term_list.source, term_list.other,
            source.values, source.exponents, right.first, right.source, right.other, self.right_words, left.first,
            left.source, left.other, self.left_words, values, exponents, self.exponents, self.alpha,
            self.status if self.forbidden is None else self.forbidden,
            self.rules.root_inner if root is None else root,
            self.n_sentences, self.longest, width, row_sum.n_rows, out.per_sentence, out.first, out.size,
            source.per_sentence, source.first, source.size, term_list.n_sources, *shifts, self.right_words.shape[2],
            self.left_words.shape[2], right.n_sources, left.n_sources, self.rules.row_size, TINY=self.form.tiny,
            IS_BEST=is_best, HAS_TERMS=terms is not None, HAS_EDGES=edges is not None,
            HAS_FORBIDDEN=is_chart and self.forbidden is not None, HAS_ROOT=root is not None, IS_PRUNED=is_pruned,
            IS_CHART=is_chart, BLOCK_A=row_sum.rows, BLOCK_R=row_sum.columns)

    def _normalise(self, chart: torch.Tensor, exponents: torch.Tensor, width: int) -> None:
        self._launch(kernels.normalise, width, 1, self.blocks.cells, chart, exponents, self.first, self.lengths,
                     self.status, self.n_sentences, self.longest, width, self._n_symbols(width), self.rules.row_size,
                     BIAS=self.form.bias, SMALLEST=self.form.smallest, BLOCK_S=self.blocks.symbols)

    def _pull(self, pairs: Pairs, given: torch.Tensor, given_first: int, width: int, first_u: int, last_u: int,
              left_column: int, right_column: int, is_pruned: bool) -> None:
        if pairs.n:
            self._pull_by((given, given.shape[1], given_first, given.shape[2]),
                          (pairs.number, pairs.right, pairs.number, pairs.left), (pairs.n, pairs.n), width, first_u,
                          last_u, left_column, right_column, is_pruned)

    def _pull_edges(self) -> None:
        """What words get by their edges, from the rules A -> p C as left children and A -> B p as right ones."""
        left, right = self.rules.left_edges, self.rules.right_edges
        if left.n or right.n:
            self._pull_by((self.beta, self.n_cells, 0, self.rules.row_size),
                          (left.parent, left.child, right.parent, right.child), (left.n, right.n), 1, 2,
                          self.longest - 1, self.rules.left_edge_column, 0, False)

    def _pull_by(self, given: tuple[torch.Tensor, int, int, int], of: tuple[torch.Tensor, ...], n: tuple[int, int],
                 width: int, first_u: int, last_u: int, left_column: int, right_column: int, is_pruned: bool) -> None:
        values, per_sentence, first, size = given
        self._launch(kernels.pull_from_parents, width, triton.cdiv(max(n), self.blocks.pairs), self.blocks.cells,
                     values, self.outside_exponents, self.alpha, self.exponents, self.first, self.lengths, self.status,
                     *of, self.scratch, self.scratch_exponents, self.n_sentences, self.longest, width, first_u, last_u,
                     per_sentence, first, size, *n, self.rules.n_columns, left_column, right_column,
                     self.rules.row_size, TINY=self.form.tiny, IS_PRUNED=is_pruned, BLOCK_U=SPLITS,
                     BLOCK_Q=self.blocks.pairs)
