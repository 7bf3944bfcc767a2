"""A rule index and a workspace as one object, which compiled functions take in one go.

Numba reads every array of a tuple again at each call from Python: some hundred of them took 30 microseconds, a tenth of
a sentence of ten words.  This object is read once, when it is made.  Each thread has its own, so that threads do not
count references to the same arrays.
"""

from __future__ import annotations

from numba import njit, types
from numba.experimental import structref

from pcfg_artifact.parsing.cpu_kernels.rule_index import RuleIndex
from pcfg_artifact.parsing.cpu_kernels.workspace import Workspace, workspace


@structref.register
class KernelArgsType(types.StructRef):
    """What compiled functions see."""


class KernelArgs(structref.StructRefProxy):
    """Its fields are for compiled functions only."""

    grammar: RuleIndex
    work: Workspace


structref.define_proxy(KernelArgs, KernelArgsType, ["grammar", "work"])


@njit(cache=True)
def _made(grammar, work):
    return KernelArgs(grammar, work)


def kernel_args(grammar: RuleIndex, longest: int) -> KernelArgs:
    """What the kernels need for sentences of up to `longest` words."""
    return _made(grammar, workspace(grammar, longest))
