"""A compiled grammar and a workspace as one object, which compiled functions take in one go.

Numba reads every array of a tuple again at each call from Python: some hundred of them took 30 microseconds, a tenth of
a sentence of ten words.  A room is read once, when it is made.  Each thread has its own, so that threads do not count
references to the same arrays.
"""

from __future__ import annotations

from numba import njit, types
from numba.experimental import structref

from pcfg_artifact.parsing.compiled import CompiledGrammar
from pcfg_artifact.parsing.linear import Workspace, workspace


@structref.register
class RoomType(types.StructRef):
    """What compiled functions see."""


class Room(structref.StructRefProxy):
    """Its fields are for compiled functions only."""

    grammar: CompiledGrammar
    work: Workspace


structref.define_proxy(Room, RoomType, ["grammar", "work"])


@njit(cache=True)
def _room(grammar, work):
    return Room(grammar, work)


def room(grammar: CompiledGrammar, longest: int) -> Room:
    """Room for sentences of up to `longest` words."""
    return _room(grammar, workspace(grammar, longest))
