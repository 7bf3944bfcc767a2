"""The inside pass in linear space; layout, legend and range as in linear.py."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, uint64

from pcfg_artifact.parsing.compiled import INDEX, CompiledGrammar
from pcfg_artifact.parsing.forbidden import Forbidden, clear
from pcfg_artifact.parsing.linear import (
    DONE,
    DRIFT,
    DRIFTING,
    INLINED,
    INLINED_SCALAR,
    NEVER_READ,
    NO_ROW,
    OUT_OF_RANGE,
    SMALLEST,
    VECTORS,
    WORD,
    Workspace,
    block_after,
    block_before,
    find_leaves,
    lowest_bit,
    members,
    reset_rows,
)
from pcfg_artifact.parsing.triangle import cell_of


@njit(nogil=True)
def find_edges(rules, edges, leaves, tags, n_tags, t, weight, touched, work):
    """The edges of word t; weight (E,) and touched (edge words,) are scratch, 0 before and after."""
    rule_first, rule_prob, of_rule = rules.first, rules.prob, edges.of_rule
    for n in range(n_tags):
        p = tags[n]
        leaf = leaves[p]
        if leaf != 0.0:
            for rule in range(rule_first[p], rule_first[p + 1]):
                edge = uint64(of_rule[rule])
                weight[edge] += rule_prob[rule] * leaf
                touched[edge >> uint64(6)] |= uint64(1) << (edge & uint64(WORD - 1))
    first, children, parents, number = work.first[t], work.child[t], work.parent[t], work.number[t]
    weights, received, edge_child, edge_parent = work.weight[t], work.received[t], edges.child, edges.parent
    n_found = members(touched, number)
    touched[:] = 0
    first[:] = 0
    for n in range(n_found):
        edge = number[n]
        child = uint64(edge_child[edge])
        first[child + uint64(1)] += INDEX(1)
        children[n] = child
        parents[n] = edge_parent[edge]
        weights[n] = weight[edge]
        received[n] = 0.0
        weight[edge] = 0.0
    total = INDEX(0)
    for child in range(uint64(len(first))):
        total += first[child]
        first[child] = total


@INLINED_SCALAR
def add_beside(total, edge_first, edge_parent, edge_weight, t, first, last, symbols, values):
    """total(A) += weight of the edge (A, B) of word t times value(B), B the entries first .. last-1 beside the word"""
    for entry in range(first, last):
        b = uint64(symbols[entry])
        for edge in range(edge_first[t, b], edge_first[t, b + uint64(1)]):
            total[edge_parent[t, edge]] += edge_weight[t, edge] * values[entry]


@njit(nogil=True)
def add_two_leaves(total, rules, pairs, left, tags, n_tags, right):
    """total(A) += P(A -> p p') left(p) right(p')"""
    pair_first, other, rule_first, matrix = pairs.first, pairs.other, pairs.rules, pairs.matrix
    rule_parent, rule_prob, is_dense = rules.parent, rules.prob, len(matrix) > 0
    for n in range(n_tags):
        p = tags[n]
        for q in range(pair_first[p], pair_first[p + 1]):
            product = left[p] * right[other[q]]
            if product == 0.0:
                continue
            if is_dense:
                add_matrix(total, matrix, q, product)
            else:
                add_rules(total, rule_parent, rule_prob, rule_first[q], rule_first[q + uint64(1)], product)


@INLINED_SCALAR
def add_rules(total, rule_parent, rule_prob, first, last, product):
    """total(A) += P(A -> q) product, for the rules of a pair q"""
    for rule in range(first, last):
        total[rule_parent[rule]] += rule_prob[rule] * product


@INLINED
def add_matrix(total, matrix, q, product):
    """The same where rules are dense."""
    for a in range(matrix.shape[1]):
        total[a] += matrix[q, a] * product


@INLINED
def dot(alpha, left, right, begin, end):
    """Sum over k of alpha[left + k] alpha[right + k]."""
    total = 0.0
    for k in range(begin, end):
        total += alpha[left + k] * alpha[right + k]
    return total


@njit(nogil=True)
def start_row(row_of, pairs_of, pairs_by_child, child_first, x, a, begin, end, top, alpha, beta):
    """Give (x, a) a row over fenceposts begin .. end-1, and its pairs to x, if it is a child; returns the new top."""
    if row_of[x, a] != NO_ROW:
        return top
    for m in range(child_first[a], child_first[a + uint64(1)]):
        pair = uint64(pairs_by_child[m])
        pairs_of[x, pair >> uint64(6)] |= uint64(1) << (pair & uint64(WORD - 1))
    row_of[x, a] = top - begin
    for k in range(top, top + end - begin):
        alpha[k] = 0.0
        beta[k] = 0.0
    return top + end - begin


@njit(nogil=True)
def find_live_pairs(left_pairs, right_pairs, pair_left, pair_right, left_mask, right_mask, n_words, live, live_pairs):
    """The pairs whose children share a split, as a list and as a bit set; returns how many.

    No branch depends on the masks, which keeps this fast.
    """
    n_live = uint64(0)
    for pair_word in range(uint64(len(left_pairs))):
        pairs, found = left_pairs[pair_word] & right_pairs[pair_word], uint64(0)
        while pairs != 0:
            bit = lowest_bit(pairs)
            q = uint64(WORD) * pair_word + bit
            b, c = pair_left[q], pair_right[q]
            common = uint64(0)
            for word in range(n_words):
                common |= left_mask[b, word] & right_mask[c, word]
            is_live = uint64(common != 0)
            live[n_live] = q
            n_live += is_live
            found |= is_live << bit
            pairs &= pairs - uint64(1)
        live_pairs[pair_word] = found
    return n_live


@njit(nogil=True, cache=True, fastmath=VECTORS)
def inside(grammar: CompiledGrammar, leaves: np.ndarray, is_full: bool, forbidden: Forbidden, work: Workspace
           ) -> tuple[int, float]:
    """Fill the chart from the (L, P) leaves; returns a status and, when DRIFTING, the bits per word to take off.

    With is_full every symbol of the right type is an entry, otherwise those that are possible.  Leaves are 0 already
    where they are forbidden.
    """
    length, n_interminals = len(leaves), len(grammar.root_inner)
    inner, first, last, symbols, values = grammar.inner, work.first, work.last, work.symbols, work.inside
    left_row, right_row, alpha, beta = work.left_row, work.right_row, work.alpha, work.beta
    left_mask, right_mask = work.left_mask, work.right_mask
    left_pairs, right_pairs, live_pairs = work.left_pairs, work.right_pairs, work.live_pairs
    pair_left, pair_right, matrix = inner.left, inner.right, inner.matrix
    rule_first, rule_parent, rule_prob = inner.first, inner.parent, inner.prob
    by_left, left_first, by_right, right_first = inner.by_left, inner.left_first, inner.by_right, inner.right_first
    right_edges, left_edges, outside_values = work.right_edges, work.left_edges, work.outside
    least_left, least_right = work.least_left, work.least_right
    n_entries, is_refused, is_dense, is_constrained = uint64(0), False, len(matrix) > 0, len(forbidden.first) > 0
    total = np.zeros(max(n_interminals, inner.matrix.shape[1]))
    found, live = np.empty(n_interminals + 1, INDEX), np.empty(len(inner.left) + 1, INDEX)
    n_right, n_left = len(grammar.right_edges.parent), len(grammar.left_edges.parent)
    weight = np.zeros(max(n_right, n_left))
    touched = np.zeros((max(n_right, n_left) + WORD - 1) // WORD, np.uint64)
    tags, n_tags = find_leaves(leaves, is_full)
    reset_rows(left_row, left_mask, length, left_first)
    reset_rows(right_row, right_mask, length, right_first)
    top = uint64(NEVER_READ + block_after(length + 1))
    beta[:top] = 0.0
    left_pairs[:length + 1] = 0
    right_pairs[:length + 1] = 0
    n_words = uint64((length + WORD) // WORD)
    if is_full:  # what is impossible itself may still receive from its sibling's side
        for x in range(length - 1):
            for a in range(uint64(n_interminals)):
                top = start_row(left_row, left_pairs, by_left, left_first, x, a, uint64(block_before(x + 2)),
                                uint64(block_after(length + 1)), top, alpha, beta)
                top = start_row(right_row, right_pairs, by_right, right_first, x + 2, a, uint64(0),
                                uint64(block_after(x + 2)), top, alpha, beta)

    for t in range(length):
        find_edges(grammar.right_leaf, grammar.right_edges, leaves[t], tags[t], n_tags[t], t, weight, touched,
                   right_edges)
        find_edges(grammar.left_leaf, grammar.left_edges, leaves[t], tags[t], n_tags[t], t, weight, touched, left_edges)

    for i in range(length - 1, -1, -1):
        cell = cell_of(i, i + 1, length)
        first[cell] = n_entries
        for n in range(n_tags[i]):
            p = tags[i, n]
            symbols[n_entries] = n_interminals + p
            values[n_entries] = leaves[i, p]
            n_entries += uint64(1)
        last[cell] = n_entries
        least_left[i, i + 1] = np.inf
        least_right[i + 1, i] = np.inf
        for j in range(i + 2, length + 1):
            cell = cell_of(i, j, length)
            if j - i == 2:
                add_two_leaves(total, grammar.two_leaves, grammar.leaf_pairs, leaves[i], tags[i], n_tags[i],
                               leaves[j - 1])
            else:
                side = cell_of(i, j - 1, length)
                add_beside(total, right_edges.first, right_edges.parent, right_edges.weight, j - 1, first[side],
                           last[side], symbols, values)
                side = cell_of(i + 1, j, length)
                add_beside(total, left_edges.first, left_edges.parent, left_edges.weight, i, first[side], last[side],
                           symbols, values)
            # total(A) += P(A -> B C) sum over k of alpha(B,i,k) alpha(C,k,j)
            n_live = uint64(0)
            if j - i >= 4:
                n_live = find_live_pairs(left_pairs[i], right_pairs[j], pair_left, pair_right, left_mask[i],
                                         right_mask[j], n_words, live, live_pairs[cell])
            begin, end = uint64(block_before(i + 2)), uint64(block_after(j - 1))
            for n in range(n_live):
                q = uint64(live[n])
                product = dot(alpha, left_row[i, pair_left[q]], right_row[j, pair_right[q]], begin, end)
                is_refused |= product < SMALLEST
                if is_dense:
                    add_matrix(total, matrix, q, product)
                else:
                    add_rules(total, rule_parent, rule_prob, rule_first[q], rule_first[q + uint64(1)], product)

            if is_constrained:
                clear(total[:n_interminals], 0.0, forbidden, cell, 0)
            first[cell] = n_entries
            n_found = uint64(0)
            for a in range(uint64(n_interminals)):
                found[n_found] = a
                n_found += uint64(is_full or total[a] != 0.0)
            largest, smallest = 0.0, np.inf
            left_begin, right_size = uint64(block_before(i + 2)), uint64(block_after(j))
            left_size = uint64(block_after(length + 1)) - left_begin
            word_i, bit_i = i // WORD, uint64(1) << uint64(i % WORD)
            word_j, bit_j = j // WORD, uint64(1) << uint64(j % WORD)
            for n in range(n_found):
                a = uint64(found[n])
                value = total[a]
                total[a] = 0.0
                symbols[n_entries] = a
                values[n_entries] = value
                outside_values[n_entries] = 0.0
                n_entries += uint64(1)
                if value == 0.0:
                    continue
                largest, smallest = max(largest, value), min(smallest, value)
                # a row of zeros, and the pairs of its child, when the first span is found (as in start_row)
                if left_row[i, a] == NO_ROW:
                    left_row[i, a] = top - left_begin
                    for k in range(top, top + left_size):
                        alpha[k] = 0.0
                        beta[k] = 0.0
                    top += left_size
                    for m in range(left_first[a], left_first[a + uint64(1)]):
                        pair = uint64(by_left[m])
                        left_pairs[i, pair >> uint64(6)] |= uint64(1) << (pair & uint64(WORD - 1))
                if right_row[j, a] == NO_ROW:
                    right_row[j, a] = top
                    for k in range(top, top + right_size):
                        alpha[k] = 0.0
                        beta[k] = 0.0
                    top += right_size
                    for m in range(right_first[a], right_first[a + uint64(1)]):
                        pair = uint64(by_right[m])
                        right_pairs[j, pair >> uint64(6)] |= uint64(1) << (pair & uint64(WORD - 1))
                left_mask[i, a, word_j] |= bit_j
                right_mask[j, a, word_i] |= bit_i
                alpha[left_row[i, a] + uint64(j)] = value
                alpha[right_row[j, a] + uint64(i)] = value
            last[cell] = n_entries
            least_left[i, j] = min(smallest, least_left[i, j - 1])
            least_right[j, i] = min(smallest, least_right[j, i + 1])
            if largest != 0.0:
                bits = math.frexp(largest)[1] if largest < np.inf else 1024
                if abs(bits) > DRIFT:
                    return DRIFTING, bits / (j - i)
    return (OUT_OF_RANGE if is_refused else DONE), 0.0
