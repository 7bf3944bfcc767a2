"""Inside-Outside of a batch of sentences as Triton kernels, one width at a time.

Legend.  A *row* holds the values of all symbols over one span: mantissas, with one exponent for all of them, so that a
value is row[a] * 2^exponent and the largest mantissa of a row lies between 2^BIAS and 2^(BIAS + 1).  Rows of a sentence
are ordered by width, then by start, for the longest sentence of the batch; those of shorter ones that
stick out are never read.  i start, u width of a child, q pair of children, e edge (A, B) of the rules of a word.

A program has BLOCK_C cells of one width, of any sentences, and a block of pairs or symbols.  Nothing is scattered and
nothing is atomic: every number is written by one program, which adds its terms in one order, so that results have the
same bits whatever the order of programs and the sizes of BLOCK_C and BLOCK_Q.

Range.  A sum that is not 0 must stay above TINY, and a mantissa above SMALLEST: what a term that underflows could have
added is then below rounding.  A sentence that does not keep this, or overflows, has status 1, and its results are void.
"""

from __future__ import annotations

import triton
import triton.language as tl

EMPTY = tl.constexpr(-(1 << 26))  # exponent of a row without any value: never the largest of a sum
SPLITS = tl.constexpr(32)  # whose exponents a program looks at together


@triton.jit
def power_of_two(n, dtype: tl.constexpr):
    """2^n for n below the largest exponent, exactly; 0 where that is no normal number."""
    if dtype == tl.float64:
        power = ((tl.maximum(n, -1023) + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)
    else:
        power = ((tl.maximum(n, -127) + 127).to(tl.int32) << 23).to(tl.float32, bitcast=True)
    return power


@triton.jit
def exponent_of(x):
    """n with 2^n <= x < 2^(n + 1), for normal x > 0."""
    if x.dtype == tl.float64:
        exponent = ((x.to(tl.int64, bitcast=True) >> 52) - 1023).to(tl.int32)
    else:
        exponent = (x.to(tl.int32, bitcast=True) >> 23) - 127
    return exponent


@triton.jit
def cells_of_program(lengths_ptr, n_sentences, n_starts, width, BLOCK_C: tl.constexpr):
    """Numbers, sentences (64 bits, for addresses) and starts of a program's cells, the words of their sentences, and
    which of them there are."""
    n = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    s, i = n // n_starts, n % n_starts
    length = tl.load(lengths_ptr + s, mask=n < n_sentences * n_starts, other=0)
    return n, s.to(tl.int64), i, length, i + width <= length


@triton.jit
def report(status_ptr, s, is_cell, is_lost):
    """Status 1 for the sentences of cells in which something is lost; all that write it write the same."""
    lost_C = tl.max(is_lost.to(tl.int32), axis=1) > 0
    tl.store(status_ptr + s, tl.full(s.shape, 1, tl.int32), mask=is_cell & lost_C)


# ---- the inside pass -------------------------------------------------------------------------------------------------


@triton.jit
def split_exponents(exponents_ptr, first_ptr, start, u, width, is_cell, end_u):
    """The cells of both children (C, U) for splits after u words, and the sum of their exponents."""
    is_split = is_cell[:, None] & (u < end_u)[None, :]
    left_cell = start + tl.load(first_ptr + u, mask=u < end_u, other=0)[None, :]
    right_cell = start + (tl.load(first_ptr + (width - u), mask=u < end_u, other=0) + u)[None, :]
    exponent = tl.load(exponents_ptr + left_cell, mask=is_split, other=EMPTY) \
        + tl.load(exponents_ptr + right_cell, mask=is_split, other=EMPTY)
    return left_cell, right_cell, exponent


@triton.jit(do_not_specialize=["n_sentences", "longest", "width", "first_u", "last_u"])
def multiply_pairs(alpha_ptr, exponents_ptr, first_ptr, lengths_ptr, status_ptr, left_ptr, right_ptr, products_ptr,
                   product_exponents_ptr, n_sentences, longest, width, first_u, last_u, n_pairs, n_columns, row_size,
                   TINY: tl.constexpr, IS_BEST: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_U: tl.constexpr,
                   BLOCK_Q: tl.constexpr):
    """products(q) = sum over u of alpha(B, i, i + u) alpha(C, i + u, i + width), or the largest term.

    Their exponent is the largest of all splits of the cell, those beside a word included.
    """
    dtype: tl.constexpr = alpha_ptr.dtype.element_ty
    n, s, i, _, is_cell = cells_of_program(lengths_ptr, n_sentences, longest - width + 1, width, BLOCK_C)
    q = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    is_pair = q < n_pairs
    left = tl.load(left_ptr + q, mask=is_pair, other=0).to(tl.int32)[None, None, :]
    right = tl.load(right_ptr + q, mask=is_pair, other=0).to(tl.int32)[None, None, :]
    start = (s * tl.load(first_ptr + longest + 1) + i)[:, None]  # a cell is this, and the first of its width

    tops = tl.full([BLOCK_C, SPLITS], 2 * EMPTY, tl.int32)
    for begin in range(1, width, SPLITS):
        u = begin + tl.arange(0, SPLITS)
        tops = tl.maximum(tops, split_exponents(exponents_ptr, first_ptr, start, u, width, is_cell, width)[2])
    top = tl.max(tops, axis=1)

    total = tl.zeros([BLOCK_C, BLOCK_U, BLOCK_Q], dtype)
    reached = tl.zeros([BLOCK_C, BLOCK_U, BLOCK_Q], dtype)
    for begin in range(first_u, last_u + 1, BLOCK_U):
        u = begin + tl.arange(0, BLOCK_U)
        left_cell, right_cell, exponent = split_exponents(exponents_ptr, first_ptr, start, u, width, is_cell,
                                                          last_u + 1)
        is_wanted = (is_cell[:, None] & (u <= last_u)[None, :])[:, :, None] & is_pair[None, None, :]
        alpha_left = tl.load(alpha_ptr + (left_cell * row_size)[:, :, None] + left, mask=is_wanted, other=0.0)
        alpha_right = tl.load(alpha_ptr + (right_cell * row_size)[:, :, None] + right, mask=is_wanted, other=0.0)
        term = (alpha_left * alpha_right) * power_of_two(exponent - top[:, None], dtype)[:, :, None]
        if IS_BEST:
            total = tl.maximum(total, term)
        else:
            total += term
        reached = tl.maximum(reached, tl.minimum(alpha_left, alpha_right))
    product = tl.max(total, axis=1) if IS_BEST else tl.sum(total, axis=1)
    report(status_ptr, s, is_cell, (tl.max(reached, axis=1) > 0.0) & (product < TINY))
    tl.store(products_ptr + (n.to(tl.int64) * n_columns)[:, None] + q[None, :], product,
             mask=is_cell[:, None] & is_pair[None, :])
    if tl.program_id(1) == 0:
        tl.store(product_exponents_ptr + n, top, mask=is_cell)


# ---- sums over rules, of both passes ---------------------------------------------------------------------------------


@triton.jit
def add_terms(total, reached, row, slice_, first_ptr, index_ptr, weight_ptr, terms_ptr, n_terms, factor, is_cell,
              IS_BEST: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_R: tl.constexpr):
    """total += weight * factor * terms[index], for the entries of a slice of a RowSum (row_sums.py)."""
    entry = tl.arange(0, BLOCK_A)[:, None] * BLOCK_R + tl.arange(0, BLOCK_R)[None, :]
    for step in range(tl.load(first_ptr + slice_), tl.load(first_ptr + slice_ + 1)):
        index = tl.load(index_ptr + step * (BLOCK_A * BLOCK_R) + entry).to(tl.int32)
        weight = tl.load(weight_ptr + step * (BLOCK_A * BLOCK_R) + entry)
        term = tl.load(terms_ptr + row[:, None, None] + index[None, :, :],
                       mask=is_cell[:, None, None] & (index < n_terms)[None, :, :], other=0.0)
        product = (weight[None, :, :] * term) * factor[:, None, None]
        total = tl.maximum(total, product) if IS_BEST else total + product
        reached = tl.maximum(reached, term)
    return total, reached


@triton.jit
def add_edges(total, reached, word_row, row, slice_, first_ptr, edge_ptr, other_ptr, words_ptr, values_ptr, n_edges,
              factor, is_cell, IS_BEST: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_R: tl.constexpr):
    """total += words[edge] * factor * values[other], likewise: what the word beside a span makes of its values."""
    entry = tl.arange(0, BLOCK_A)[:, None] * BLOCK_R + tl.arange(0, BLOCK_R)[None, :]
    for step in range(tl.load(first_ptr + slice_), tl.load(first_ptr + slice_ + 1)):
        edge = tl.load(edge_ptr + step * (BLOCK_A * BLOCK_R) + entry).to(tl.int32)
        other = tl.load(other_ptr + step * (BLOCK_A * BLOCK_R) + entry).to(tl.int32)
        is_wanted = is_cell[:, None, None] & (edge < n_edges)[None, :, :]
        word = tl.load(words_ptr + word_row[:, None, None] + edge[None, :, :], mask=is_wanted, other=0.0)
        value = tl.load(values_ptr + row[:, None, None] + other[None, :, :], mask=is_wanted, other=0.0)
        product = (word * value) * factor[:, None, None]
        total = tl.maximum(total, product) if IS_BEST else total + product
        reached = tl.maximum(reached, tl.minimum(word, value))
    return total, reached


@triton.jit(do_not_specialize=["n_sentences", "longest", "width", "out_per_sentence", "out_first", "terms_per_sentence",
                               "terms_first", "edge_width", "right_word", "left_word", "left_start"])
def sum_rows(out_ptr, out_exponents_ptr, first_cell_ptr, lengths_ptr, status_ptr, symbol_ptr, first_ptr, index_ptr,
             weight_ptr, terms_ptr, term_exponents_ptr, right_first_ptr, right_edge_ptr, right_other_ptr,
             right_words_ptr, left_first_ptr, left_edge_ptr, left_other_ptr, left_words_ptr, edge_values_ptr,
             edge_exponents_ptr, word_exponents_ptr, alpha_ptr, forbidden_ptr, root_ptr,
             n_sentences, longest, width, n_rows, out_per_sentence, out_first, out_size, terms_per_sentence,
             terms_first, terms_size, n_terms, edge_width, right_word, left_word, left_start, right_size, left_size,
             n_right, n_left, row_size, TINY: tl.constexpr, IS_BEST: tl.constexpr, HAS_TERMS: tl.constexpr,
             HAS_EDGES: tl.constexpr, HAS_FORBIDDEN: tl.constexpr, HAS_ROOT: tl.constexpr, IS_PRUNED: tl.constexpr,
             IS_CHART: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_R: tl.constexpr):
    """out(a) of every cell of a width = sum (or largest) over the entries of a: weighted terms, and edges of two words.

    Row r of a sentence's terms is that of start r - terms_first.  Edges: the word at i + right_word beside the values
    of the span (i, edge_width), the word at i + left_word beside those of (i + left_start, edge_width).
    IS_CHART: out is a chart, with exponents of its own.  HAS_ROOT: the span of the whole sentence has the root instead.
    IS_PRUNED: 0 where alpha is 0.
    """
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    _, s, i, length, is_cell = cells_of_program(lengths_ptr, n_sentences, longest - width + 1, width, BLOCK_C)
    slice_ = tl.program_id(1)
    n_cells = tl.load(first_cell_ptr + longest + 1)
    top = tl.full([BLOCK_C], 2 * EMPTY, tl.int32)
    terms_row = s * terms_per_sentence + terms_first + i
    if HAS_TERMS:
        terms_top = tl.load(term_exponents_ptr + terms_row, mask=is_cell, other=2 * EMPTY)
        top = tl.maximum(top, terms_top)
    if HAS_EDGES:
        beside_right = s * n_cells + tl.load(first_cell_ptr + edge_width) + i
        beside_left = beside_right + left_start
        is_right = is_cell & (i + edge_width <= length)
        is_left = is_cell & (i + left_start >= 0) & (i + left_start + edge_width <= length)
        right_top = tl.load(edge_exponents_ptr + beside_right, mask=is_right, other=EMPTY) \
            + tl.load(word_exponents_ptr + s * n_cells + i + right_word, mask=is_right, other=EMPTY)
        left_top = tl.load(edge_exponents_ptr + beside_left, mask=is_left, other=EMPTY) \
            + tl.load(word_exponents_ptr + s * n_cells + i + left_word, mask=is_left, other=EMPTY)
        top = tl.maximum(top, tl.maximum(right_top, left_top))

    total = tl.zeros([BLOCK_C, BLOCK_A, BLOCK_R], dtype)
    reached = tl.zeros([BLOCK_C, BLOCK_A, BLOCK_R], dtype)
    if HAS_TERMS:
        total, reached = add_terms(
            total, reached, terms_row * terms_size, slice_, first_ptr, index_ptr, weight_ptr, terms_ptr, n_terms,
            power_of_two(terms_top - top, dtype), is_cell, IS_BEST, BLOCK_A, BLOCK_R)
    if HAS_EDGES:
        total, reached = add_edges(
            total, reached, (s * longest + i + right_word) * right_size, beside_right * row_size, slice_,
            right_first_ptr, right_edge_ptr, right_other_ptr, right_words_ptr, edge_values_ptr, n_right,
            power_of_two(right_top - top, dtype), is_right, IS_BEST, BLOCK_A, BLOCK_R)
        total, reached = add_edges(
            total, reached, (s * longest + i + left_word) * left_size, beside_left * row_size, slice_, left_first_ptr,
            left_edge_ptr, left_other_ptr, left_words_ptr, edge_values_ptr, n_left,
            power_of_two(left_top - top, dtype), is_left, IS_BEST, BLOCK_A, BLOCK_R)
    value = tl.max(total, axis=2) if IS_BEST else tl.sum(total, axis=2)
    is_reached = tl.max(reached, axis=2) > 0.0

    symbol = tl.load(symbol_ptr + slice_ * BLOCK_A + tl.arange(0, BLOCK_A)).to(tl.int32)
    is_wanted = is_cell[:, None] & (symbol < n_rows)[None, :]
    out_row = s * out_per_sentence + out_first + i
    if HAS_ROOT:
        is_top = (is_cell & (i == 0) & (length == width))[:, None]
        root = tl.load(root_ptr + symbol, mask=symbol < n_rows, other=0.0)
        value, is_reached = tl.where(is_top, root[None, :], value), is_reached & ~is_top
        top = tl.where((i == 0) & (length == width), 0, top)
    is_kept = is_wanted
    if HAS_FORBIDDEN:
        is_kept &= tl.load(forbidden_ptr + (out_row * row_size)[:, None] + symbol[None, :], mask=is_wanted,
                           other=1) == 0
    if IS_PRUNED:
        is_kept &= tl.load(alpha_ptr + (out_row * row_size)[:, None] + symbol[None, :], mask=is_wanted, other=0.0) > 0.0
    report(status_ptr, s, is_cell, is_kept & is_reached & (value < TINY))
    tl.store(out_ptr + (out_row * out_size)[:, None] + symbol[None, :], tl.where(is_kept, value, 0.0), mask=is_wanted)
    if IS_CHART:
        tl.store(out_exponents_ptr + out_row, top, mask=is_cell & (slice_ == 0))


@triton.jit(do_not_specialize=["n_sentences", "longest", "width", "n_symbols"])
def normalise(chart_ptr, exponents_ptr, first_ptr, lengths_ptr, status_ptr, n_sentences, longest, width, n_symbols,
              row_size, BIAS: tl.constexpr, SMALLEST: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr):
    """Move the largest mantissa of every row of a width to 2^BIAS, exactly: all are multiplied by a power of two."""
    dtype: tl.constexpr = chart_ptr.dtype.element_ty
    _, s, i, _, is_cell = cells_of_program(lengths_ptr, n_sentences, longest - width + 1, width, BLOCK_C)
    cell = s * tl.load(first_ptr + longest + 1) + tl.load(first_ptr + width) + i
    values = tl.zeros([BLOCK_C, BLOCK_S], dtype)
    possible = tl.full([BLOCK_C, BLOCK_S], float("inf"), dtype)
    for begin in range(0, n_symbols, BLOCK_S):
        symbol = begin + tl.arange(0, BLOCK_S)
        value = tl.load(chart_ptr + (cell * row_size)[:, None] + symbol[None, :],
                        mask=is_cell[:, None] & (symbol < n_symbols)[None, :], other=0.0)
        values = tl.maximum(values, value)
        possible = tl.minimum(possible, tl.where(value > 0.0, value, float("inf")))
    largest, least = tl.max(values, axis=1), tl.min(possible, axis=1)
    is_filled = largest > 0.0
    shift = tl.where(is_filled, BIAS - exponent_of(largest), 0)
    first_factor = power_of_two(shift >> 1, dtype)  # in two steps: one power may not be a number of this type
    second_factor = power_of_two(shift - (shift >> 1), dtype)
    is_lost = is_filled & ~((largest < float("inf")) & (least * first_factor * second_factor >= SMALLEST))
    tl.store(status_ptr + s, tl.full([BLOCK_C], 1, tl.int32), mask=is_cell & is_lost)
    exponent = tl.load(exponents_ptr + cell, mask=is_cell, other=EMPTY)
    tl.store(exponents_ptr + cell, tl.where(is_filled, exponent - shift, EMPTY), mask=is_cell)
    for begin in range(0, n_symbols, BLOCK_S):
        symbol = begin + tl.arange(0, BLOCK_S)
        place = chart_ptr + (cell * row_size)[:, None] + symbol[None, :]
        is_wanted = (is_cell & is_filled)[:, None] & (symbol < n_symbols)[None, :]
        value = tl.load(place, mask=is_wanted, other=0.0)
        tl.store(place, (value * first_factor[:, None]) * second_factor[:, None], mask=is_wanted)


# ---- the outside pass ------------------------------------------------------------------------------------------------


@triton.jit
def parent_exponents(parent_exponents_ptr, exponents_ptr, first_ptr, base, i, length, u, width, is_cell, end_u):
    """Of a cell as a left child beside siblings of u words, and as a right child: which there are (C, U), the cell of
    the parent, that of the sibling, and the sum of their exponents.
    """
    is_width = (u < end_u)[None, :]
    is_after = is_cell[:, None] & is_width & (i[:, None] + width + u[None, :] <= length[:, None])
    is_before = is_cell[:, None] & is_width & (i[:, None] >= u[None, :])
    parent = (base + i)[:, None] + tl.load(first_ptr + (width + u), mask=u < end_u, other=0)[None, :]
    sibling = (base + i)[:, None] + tl.load(first_ptr + u, mask=u < end_u, other=0)[None, :]
    as_left = tl.load(parent_exponents_ptr + parent, mask=is_after, other=EMPTY) \
        + tl.load(exponents_ptr + (sibling + width), mask=is_after, other=EMPTY)
    as_right = tl.load(parent_exponents_ptr + (parent - u[None, :]), mask=is_before, other=EMPTY) \
        + tl.load(exponents_ptr + (sibling - u[None, :]), mask=is_before, other=EMPTY)
    return is_after, is_before, parent, sibling, as_left, as_right


@triton.jit
def pull(total, reached, given_ptr, given_row, given_size, given, alpha_ptr, sibling_row, row_size, sibling, is_wanted,
         factor):
    """total += given * factor * alpha, of tiles (C, U, Q), and whether there was a term."""
    parent = tl.load(given_ptr + (given_row * given_size)[:, :, None] + given[None, None, :], mask=is_wanted, other=0.0)
    alpha = tl.load(alpha_ptr + (sibling_row * row_size)[:, :, None] + sibling[None, None, :], mask=is_wanted,
                    other=0.0)
    return total + (parent * alpha) * factor[:, :, None], tl.maximum(reached, tl.minimum(parent, alpha))


@triton.jit(do_not_specialize=["n_sentences", "longest", "width", "first_u", "last_u", "given_per_sentence",
                               "given_first"])
def pull_from_parents(given_ptr, parent_exponents_ptr, alpha_ptr, exponents_ptr, first_ptr, lengths_ptr, status_ptr,
                      left_given_ptr, right_sibling_ptr, right_given_ptr, left_sibling_ptr, pulled_ptr,
                      pulled_exponents_ptr, n_sentences, longest, width, first_u, last_u, given_per_sentence,
                      given_first, given_size, n_left, n_right, n_columns, left_column, right_column, row_size,
                      TINY: tl.constexpr, IS_PRUNED: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_U: tl.constexpr,
                      BLOCK_Q: tl.constexpr):
    """What the larger spans around a cell give it as a left child (i, width) beside right siblings of width u, and as a
    right child beside left siblings: for every pair, or for every edge of its word.

    pulled(left_column + q) = sum over u of given(left_given[q], i, i + width + u) alpha(right_sibling[q], after it)
    pulled(right_column + q) = sum over u of given(right_given[q], i - u, i + width) alpha(left_sibling[q], before it)

    IS_PRUNED, of pairs: what a child with alpha 0 would get may be lost, since nobody reads it.
    """
    dtype: tl.constexpr = alpha_ptr.dtype.element_ty
    n, s, i, length, is_cell = cells_of_program(lengths_ptr, n_sentences, longest - width + 1, width, BLOCK_C)
    q = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    is_left_pair, is_right_pair = q < n_left, q < n_right
    left_given = tl.load(left_given_ptr + q, mask=is_left_pair, other=0).to(tl.int32)
    right_given = tl.load(right_given_ptr + q, mask=is_right_pair, other=0).to(tl.int32)
    right_sibling = tl.load(right_sibling_ptr + q, mask=is_left_pair, other=0).to(tl.int32)
    left_sibling = tl.load(left_sibling_ptr + q, mask=is_right_pair, other=0).to(tl.int32)
    base = s * tl.load(first_ptr + longest + 1)

    tops = tl.full([BLOCK_C, SPLITS], 2 * EMPTY, tl.int32)
    for begin in range(1, longest - width + 1, SPLITS):
        u = begin + tl.arange(0, SPLITS)
        _, _, _, _, as_left, as_right = parent_exponents(
            parent_exponents_ptr, exponents_ptr, first_ptr, base, i, length, u, width, is_cell, longest - width + 1)
        tops = tl.maximum(tops, tl.maximum(as_left, as_right))
    top = tl.max(tops, axis=1)

    left_total = tl.zeros([BLOCK_C, BLOCK_U, BLOCK_Q], dtype)
    left_reached = tl.zeros([BLOCK_C, BLOCK_U, BLOCK_Q], dtype)
    right_total = tl.zeros([BLOCK_C, BLOCK_U, BLOCK_Q], dtype)
    right_reached = tl.zeros([BLOCK_C, BLOCK_U, BLOCK_Q], dtype)
    for begin in range(first_u, last_u + 1, BLOCK_U):
        u = begin + tl.arange(0, BLOCK_U)
        is_after, is_before, parent, sibling, as_left, as_right = parent_exponents(
            parent_exponents_ptr, exponents_ptr, first_ptr, base, i, length, u, width, is_cell, last_u + 1)
        given_row = parent + (s * given_per_sentence - base - given_first)[:, None]
        left_total, left_reached = pull(
            left_total, left_reached, given_ptr, given_row, given_size, left_given, alpha_ptr, sibling + width,
            row_size, right_sibling, is_after[:, :, None] & is_left_pair[None, None, :],
            power_of_two(as_left - top[:, None], dtype))
        right_total, right_reached = pull(
            right_total, right_reached, given_ptr, given_row - u[None, :], given_size, right_given, alpha_ptr,
            sibling - u[None, :], row_size, left_sibling, is_before[:, :, None] & is_right_pair[None, None, :],
            power_of_two(as_right - top[:, None], dtype))

    left_pulled, right_pulled = tl.sum(left_total, axis=1), tl.sum(right_total, axis=1)
    is_left_lost = (tl.max(left_reached, axis=1) > 0.0) & (left_pulled < TINY)
    is_right_lost = (tl.max(right_reached, axis=1) > 0.0) & (right_pulled < TINY)
    left_wanted, right_wanted = is_cell[:, None] & is_left_pair[None, :], is_cell[:, None] & is_right_pair[None, :]
    if IS_PRUNED:
        row = alpha_ptr + ((base + tl.load(first_ptr + width) + i) * row_size)[:, None]
        is_left_lost &= tl.load(row + left_sibling[None, :], mask=left_wanted, other=0.0) > 0.0
        is_right_lost &= tl.load(row + right_sibling[None, :], mask=right_wanted, other=0.0) > 0.0
    report(status_ptr, s, is_cell, is_left_lost | is_right_lost)
    row = pulled_ptr + (n.to(tl.int64) * n_columns)[:, None] + q[None, :]
    tl.store(row + left_column, left_pulled, mask=left_wanted)
    tl.store(row + right_column, right_pulled, mask=right_wanted)
    if tl.program_id(1) == 0:
        tl.store(pulled_exponents_ptr + n, top, mask=is_cell)


# ---- what is read back -----------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["n_sentences", "longest", "width", "n_symbols"])
def largest_marginals(alpha_ptr, exponents_ptr, beta_ptr, outside_exponents_ptr, first_ptr, lengths_ptr, z_ptr,
                      z_exponents_ptr, scores_ptr, n_sentences, longest, width, n_symbols, row_size,
                      BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr):
    """scores(cell) = max over symbols of alpha beta / Z, for the cells of a width; 0 where Z is 0."""
    _, s, i, _, is_cell = cells_of_program(lengths_ptr, n_sentences, longest - width + 1, width, BLOCK_C)
    cell = s * tl.load(first_ptr + longest + 1) + tl.load(first_ptr + width) + i
    products = tl.zeros([BLOCK_C, BLOCK_S], alpha_ptr.dtype.element_ty)
    for begin in range(0, n_symbols, BLOCK_S):
        symbol = begin + tl.arange(0, BLOCK_S)
        is_wanted = is_cell[:, None] & (symbol < n_symbols)[None, :]
        place = (cell * row_size)[:, None] + symbol[None, :]
        product = tl.load(alpha_ptr + place, mask=is_wanted, other=0.0) \
            * tl.load(beta_ptr + place, mask=is_wanted, other=0.0)
        products = tl.maximum(products, product)
    largest = tl.max(products, axis=1).to(tl.float64)
    z = tl.load(z_ptr + s, mask=is_cell, other=0.0)
    exponent = tl.load(exponents_ptr + cell, mask=is_cell, other=EMPTY) \
        + tl.load(outside_exponents_ptr + cell, mask=is_cell, other=EMPTY) \
        - tl.load(z_exponents_ptr + s, mask=is_cell, other=0)
    is_possible = (z > 0.0) & (largest > 0.0)
    score = (largest / tl.where(is_possible, z, 1.0)) * power_of_two(tl.minimum(exponent, 1023), tl.float64)
    tl.store(scores_ptr + cell, tl.where(is_possible, score, 0.0), mask=is_cell)
