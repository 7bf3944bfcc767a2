"""Vector instructions for compiled kernels: four float64 at a time, wherever they lie.

A loop over four cells is too short for the compiler to find by itself (it unrolls the loop first), and loops over rows
of a few vectors lose more to its tests for overlap and remainders than they gain.  So these say what is meant.  Each
function is used inside kernels only; its first line is its meaning, in words of NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_compiled_inline: Any = intrinsic  # numba passes the first argument itself, which type checkers cannot know
LANES_4 = 4
_VECTOR = ir.VectorType(ir.DoubleType(), LANES_4)
_FUSED = ("contract",)  # a product and its sum may be one instruction


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _VECTOR.as_pointer())


def _load(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.load(_pointer(context, builder, kind, array, index), align=8)


def _everywhere(builder: Any, number: Any) -> Any:
    """A vector of one number."""
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES_4), [0] * LANES_4)
    return builder.shuffle_vector(single, ir.Constant(_VECTOR, ir.Undefined), zeros)


def _fused(builder: Any, x: Any, y: Any, total: Any) -> Any:
    return builder.fadd(total, builder.fmul(x, y, flags=_FUSED), flags=_FUSED)


def _sum(builder: Any, vector: Any) -> Any:
    lanes = [builder.extract_element(vector, ir.Constant(ir.IntType(32), lane)) for lane in range(LANES_4)]
    return builder.fadd(builder.fadd(lanes[0], lanes[2]), builder.fadd(lanes[1], lanes[3]))


@_compiled_inline
def add_4(typing_context, target, at, factor, source, begin):
    """target[at:at + 4] += factor * source[begin:begin + 4]"""
    def generate(context, builder, signature, arguments):
        kinds, (target, at, factor, source, begin) = signature.args, arguments
        place = _pointer(context, builder, kinds[0], target, at)
        added = _fused(builder, _everywhere(builder, factor), _load(context, builder, kinds[3], source, begin),
                       builder.load(place, align=8))
        builder.store(added, place, align=8)
        return context.get_dummy_value()

    return types.void(target, types.uint64, types.float64, source, types.uint64), generate


@_compiled_inline
def set_row(typing_context, target, at, factor, source, begin, n):
    """target[at:at + n] = factor * source[begin:begin + n], n a multiple of 4"""
    return types.void(target, types.uint64, types.float64, source, types.uint64, types.uint64), _row(is_sum=False)


@_compiled_inline
def add_row(typing_context, target, at, factor, source, begin, n):
    """target[at:at + n] += factor * source[begin:begin + n], n a multiple of 4"""
    return types.void(target, types.uint64, types.float64, source, types.uint64, types.uint64), _row(is_sum=True)


def _row(is_sum: bool) -> Any:
    def generate(context, builder, signature, arguments):
        kinds, (target, at, factor, source, begin, n) = signature.args, arguments
        factors = _everywhere(builder, factor)
        with _blocks(builder, n) as k:
            place = _pointer(context, builder, kinds[0], target, builder.add(at, k))
            row = _load(context, builder, kinds[3], source, builder.add(begin, k))
            total = _fused(builder, factors, row, builder.load(place, align=8)) if is_sum else \
                builder.fmul(factors, row)
            builder.store(total, place, align=8)
        return context.get_dummy_value()
    return generate


@contextmanager
def _loop(builder: Any, first: Any, last: Any, step: int) -> Iterator[Any]:
    with cgutils.for_range_slice(builder, first, last, ir.Constant(last.type, step), last.type) as (index, _):
        yield index


def _blocks(builder: Any, n: Any) -> Any:
    return _loop(builder, ir.Constant(n.type, 0), n, LANES_4)


@_compiled_inline
def exchange_rows(typing_context, given, at, alpha, beta, row, value, n):
    """beta[row:row + n] += value * given[at:at + n]; returns given[at:at + n] @ alpha[row:row + n]; n as in add_row"""
    def generate(context, builder, signature, arguments):
        kinds, (given, at, alpha, beta, row, value, n) = signature.args, arguments
        values = _everywhere(builder, value)
        total = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0.0] * LANES_4))
        builder.store(ir.Constant(_VECTOR, [0.0] * LANES_4), total)
        with _blocks(builder, n) as k:
            received = _load(context, builder, kinds[0], given, builder.add(at, k))
            sibling = _load(context, builder, kinds[2], alpha, builder.add(row, k))
            builder.store(_fused(builder, received, sibling, builder.load(total)), total)
            place = _pointer(context, builder, kinds[3], beta, builder.add(row, k))
            builder.store(_fused(builder, values, received, builder.load(place, align=8)), place, align=8)
        return _sum(builder, builder.load(total))

    return types.float64(given, types.uint64, alpha, beta, types.uint64, types.float64, types.uint64), generate


@_compiled_inline
def gather_4(typing_context, target, at, weight, index, first, last, source):
    """target[at:at + 4] = sum over r in first .. last-1 of weight[r] * source[4 * index[r]:4 * index[r] + 4]"""
    def generate(context, builder, signature, arguments):
        kinds, (target, at, weight, index, first, last, source) = signature.args, arguments
        weights = context.make_array(kinds[2])(context, builder, weight).data
        indices = context.make_array(kinds[3])(context, builder, index).data
        total = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0.0] * LANES_4))
        builder.store(ir.Constant(_VECTOR, [0.0] * LANES_4), total)
        with _loop(builder, first, last, 1) as r:
            place = builder.shl(builder.zext(builder.load(builder.gep(indices, [r])), first.type),
                                ir.Constant(first.type, 2))
            row = _load(context, builder, kinds[6], source, place)
            factors = _everywhere(builder, builder.load(builder.gep(weights, [r])))
            builder.store(_fused(builder, factors, row, builder.load(total)), total)
        builder.store(builder.load(total), _pointer(context, builder, kinds[0], target, at), align=8)
        return context.get_dummy_value()

    return types.void(target, types.uint64, weight, index, types.uint64, types.uint64, source), generate


@_compiled_inline
def nonzero_64(typing_context, source, at):
    """Bit n is set where source[at + n] is not 0, n < 64."""
    def generate(context, builder, signature, arguments):
        many = ir.VectorType(ir.DoubleType(), 64)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), many.as_pointer())
        is_set = builder.fcmp_unordered("!=", builder.load(place, align=8), ir.Constant(many, [0.0] * 64))
        return builder.bitcast(is_set, ir.IntType(64))

    return types.uint64(source, types.uint64), generate


@_compiled_inline
def signs_4(typing_context, source, at, smallest):
    """Bit n is set where source[at + n] is not 0, bit n + 4 where it is not 0 and below `smallest`."""
    def generate(context, builder, signature, arguments):
        kinds, (source, at, smallest) = signature.args, arguments
        vector = _load(context, builder, kinds[0], source, at)
        is_set = builder.fcmp_unordered("!=", vector, ir.Constant(_VECTOR, [0.0] * LANES_4))
        is_small = builder.and_(is_set, builder.fcmp_ordered("<", vector, _everywhere(builder, smallest)))
        low, high = (builder.zext(builder.bitcast(bits, ir.IntType(LANES_4)), ir.IntType(64))
                     for bits in (is_set, is_small))
        return builder.or_(low, builder.shl(high, ir.Constant(ir.IntType(64), LANES_4)))

    return types.uint64(source, types.uint64, types.float64), generate
