"""Tables of pages whose fields are read from a record: the numbers of all recorded seeds, or one where they agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pcfg_artifact.cells import Cell
from pcfg_artifact.verification.expectations import Record

Values = Mapping[Cell, float]  # of one seed


def over_seeds(record: Record, cell: Cell, form: str) -> str:
    return computed(record, lambda values: values[cell], form)


def computed(record: Record, value: Callable[[Values], float], form: str) -> str:
    """A number of every recorded seed, in their order; nothing where a run does not have it."""
    try:
        found = [format(value(record.by_seed[seed]), form) for seed in record.seeds]
    except KeyError:
        return ""
    return found[0] if len(set(found)) == 1 else " / ".join(found)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
