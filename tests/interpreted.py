"""Triton's interpreter, quick enough for many small launches; imported before anything imports Triton.

The interpreter makes Triton's language its own before every launch and at every call of one kernel function by another,
by looking through all of the language, and undoes it after the launch.  Nothing is compiled in the process of a test,
so here it is done once and stays.  It also looks at every sum of integers for an overflow, which takes a third of the
time: `checked_integers` switches that on where a test is about overflows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType

os.environ["TRITON_INTERPRET"] = "1"

from triton import language
from triton.runtime import interpreter

_patch_lang = interpreter._patch_lang
_patched: set[tuple[str, ...]] = set()


class _Kept:
    def restore(self) -> None:
        """The language stays the interpreter's."""


def _patch_once(fn: FunctionType) -> _Kept:
    modules = tuple(sorted(name for name, value in fn.__globals__.items()
                           if isinstance(value, ModuleType) and value in (language, language.core)))
    if modules not in _patched:
        _patch_lang(fn)
        _patched.add(modules)
    return _Kept()


interpreter._patch_lang = _patch_once
interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)


@contextmanager
def checked_integers() -> Iterator[None]:
    """Every sum, difference and product of integers that does not fit its type is an error."""
    builder = interpreter.interpreter_builder
    before, builder.options = builder.options, interpreter.InterpreterOptions(sanitize_overflow=True)
    try:
        yield
    finally:
        builder.options = before
