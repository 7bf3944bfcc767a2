"""One sentence from leaves to compact chart in linear space, in one call: calls from Python cost as much as short
sentences.  Layout, legend and range as in workspace.py."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from pcfg_artifact.parsing.chart_index import cell_of
from pcfg_artifact.parsing.constraints import Forbidden
from pcfg_artifact.parsing.cpu_kernels.inside import inside
from pcfg_artifact.parsing.cpu_kernels.outside import outside
from pcfg_artifact.parsing.cpu_kernels.rule_index import INDEX
from pcfg_artifact.parsing.cpu_kernels.semiring import SMALLEST_RULE
from pcfg_artifact.parsing.cpu_kernels.workspace import DONE, DRIFTING, OUT_OF_RANGE, KernelArgs, find_nonzero

MAX_RESCALES = 20  # each moves the first cell that drifted back to about 1


@njit(nogil=True)
def scale_leaves(leaves, is_full):
    """Leaves (L, P) divided by the largest of each word, the logs (L,) of what they were divided by, the smallest that
    is not 0; the pre-terminals (L, P) of every word, with is_full all of them, and their number (L,).
    """
    scaled, log_scale, smallest = np.zeros(leaves.shape), np.zeros(len(leaves)), 1.0
    tags, n_tags = np.empty(leaves.shape, INDEX), np.empty(len(leaves), np.int64)
    for t in range(len(leaves)):
        n_tags[t] = find_nonzero(leaves[t], tags[t])
        peak = 0.0
        for n in range(n_tags[t]):
            peak = max(peak, leaves[t, tags[t, n]])
        if peak <= 0.0:
            peak = 1.0
        log_scale[t] = math.log(peak)
        for n in range(n_tags[t]):
            p = tags[t, n]
            scaled[t, p] = leaves[t, p] / peak
            smallest = min(smallest, scaled[t, p])  # 0 where it cannot be held: too small
        if is_full:
            n_tags[t] = leaves.shape[1]
            tags[t] = np.arange(n_tags[t])
    return scaled, log_scale, smallest, tags, n_tags


@njit(nogil=True)
def scaled_inside(grammar, leaves, is_full, smallest_rule, forbidden, work):
    """Fill the workspace; a status, the leaves as they were scaled, their tags, and the logs (L,) taken off."""
    scaled, log_scale, smallest_leaf, tags, n_tags = scale_leaves(leaves, is_full)
    for _ in range(MAX_RESCALES):
        if smallest_leaf * smallest_rule < SMALLEST_RULE:
            break
        status, drift = inside(grammar, scaled, tags, n_tags, is_full, forbidden, work)
        if status != DRIFTING:
            return status, scaled, tags, n_tags, log_scale
        bits = -round(drift) if abs(drift) >= 1 else -np.sign(drift)
        scaled *= 2.0 ** bits  # exact: every span of n words is multiplied by 2^(n bits)
        smallest_leaf *= 2.0 ** bits
        log_scale -= bits * math.log(2.0)
    return OUT_OF_RANGE, scaled, tags, n_tags, log_scale


@njit(nogil=True, cache=True)
def log_prob(args: KernelArgs, leaves: np.ndarray, smallest_rule: float, forbidden: Forbidden) -> tuple[int, float]:
    """A status, and log Z from the inside pass alone."""
    grammar, work = args.grammar, args.work
    length, n_interminals = len(leaves), len(grammar.root_inner)
    status, _, _, _, log_scale = scaled_inside(grammar, leaves, False, smallest_rule, forbidden, work)
    if status != DONE or length == 0:
        return status, -np.inf
    cell, total = cell_of(0, length, length), 0.0
    for entry in range(work.first[cell], work.last[cell]):
        a = np.int64(work.symbols[entry])
        root = grammar.root_inner[a] if a < n_interminals else grammar.root_leaf[a - n_interminals]
        total += root * work.inside[entry]
    return status, math.log(total) + log_scale.sum() if total > 0.0 else -np.inf


@njit(nogil=True, cache=True)
def chart(args: KernelArgs, leaves: np.ndarray, is_full: bool, smallest_rule: float, forbidden: Forbidden
          ) -> tuple[int, float, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A status, log Z, and what a Chart holds: log_scale, offsets, symbols, inside, outside."""
    grammar, work = args.grammar, args.work
    length, n = len(leaves), len(leaves) * (len(leaves) + 1) // 2
    status, scaled, tags, n_tags, log_scale = scaled_inside(grammar, leaves, is_full, smallest_rule, forbidden, work)
    if status == DONE:
        status = outside(grammar, scaled, tags, n_tags, is_full, forbidden, work)
    sums, offsets = np.zeros(length + 1), np.zeros(n + 1, np.int64)
    if status == DONE:
        for t in range(length):
            sums[t + 1] = sums[t] + log_scale[t]
        for cell in range(n):
            offsets[cell + 1] = offsets[cell] + np.int64(work.last[cell] - work.first[cell])
    symbols, alpha, beta = np.empty(offsets[n], np.int32), np.empty(offsets[n]), np.empty(offsets[n])
    total = 0.0
    for cell in range(n if status == DONE else 0):
        begin, first = offsets[cell], np.int64(work.first[cell])
        for entry in range(offsets[cell + 1] - begin):
            symbols[begin + entry] = work.symbols[first + entry]
            alpha[begin + entry] = work.inside[first + entry]
            beta[begin + entry] = work.outside[first + entry]
            if cell == length - 1:  # the whole sentence, whose beta is the root distribution
                total += alpha[begin + entry] * beta[begin + entry]
    return status, math.log(total) + sums[length] if total > 0.0 else -np.inf, sums, offsets, symbols, alpha, beta
