"""Vector instructions do what their first line says, wherever their arrays lie."""

import numpy as np
import pytest
from numba import njit, uint64

from pcfg_artifact.parsing.cpu_kernels.vectors import (
    add_4,
    add_row,
    exchange_rows,
    gather_4,
    nonzero_64,
    set_row,
    signs_4,
)


@njit
def all_of_them(target, source, weight, index, at, begin, n):
    add_4(target, at, 2.0, source, begin)
    set_row(target, at + uint64(10), 3.0, source, begin, n)
    add_row(target, at + uint64(10), 0.5, source, begin + uint64(1), n)
    product = exchange_rows(source, begin, source, target, at + uint64(30), 2.0, n)
    gather_4(target, at + uint64(50), weight, index, uint64(1), uint64(3), source)
    return product, signs_4(source, begin, 0.5)


@pytest.mark.parametrize(("at", "begin", "n"), [(0, 0, 0), (1, 3, 4), (2, 1, 8), (5, 2, 12)])
def test_vectors_equal_numpy(at, begin, n):
    source = np.random.default_rng(n).random(70)
    source[begin + 1] = 0.0
    source[begin + 2] = 0.25
    weight, index = np.array([9.0, 2.0, 3.0]), np.array([9, 1, 2], np.uint32)
    target, expected = np.ones(70), np.ones(70)
    product, signs = all_of_them(target, source, weight, index, np.uint64(at), np.uint64(begin), np.uint64(n))
    expected[at:at + 4] += 2 * source[begin:begin + 4]
    expected[at + 10:at + 10 + n] = 3 * source[begin:begin + n] + 0.5 * source[begin + 1:begin + 1 + n]
    at_row = slice(at + 30, at + 30 + n)
    assert product == pytest.approx(source[begin:begin + n] @ source[at_row], rel=1e-14, abs=0)
    expected[at_row] += 2 * source[begin:begin + n]
    expected[at + 50:at + 54] = 2 * source[4:8] + 3 * source[8:12]
    np.testing.assert_allclose(target, expected, rtol=1e-14)
    four = source[begin:begin + 4]
    assert [signs >> lane & 1 for lane in range(8)] == [*(four != 0), *((four != 0) & (four < 0.5))]


@njit
def found_in(source, at):
    return nonzero_64(source, at)


@pytest.mark.parametrize("at", [0, 3])
def test_numbers_among_zeros_are_found_by_bits(at):
    source = np.zeros(70)
    source[[at, at + 1, at + 17, at + 63]] = [1.0, -1.0, 5e-324, np.nan]
    source[at + 5] = -0.0
    assert found_in(source, np.uint64(at)) == 1 | 1 << 1 | 1 << 17 | 1 << 63
