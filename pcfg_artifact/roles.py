"""The models of a run by their names, and the roles they play: which is the base model, which are too small."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from pcfg_artifact.cells import NEXT_WORD, PRETRAINED, Cell, natural

MODEL = re.compile(r"A(\d+)L(\d+)")  # the paper's: masked models, which alone play roles
CAUSAL = re.compile(r"C(\d+)L(\d+)")


class Size(NamedTuple):
    heads: int
    layers: int


def model_size(name: str, family: re.Pattern[str] = MODEL) -> Size | None:
    """Heads and layers of a masked model called A4L3 (of family CAUSAL: C4L3); None for any other name."""
    match = family.fullmatch(name)
    return Size(int(match[1]), int(match[2])) if match else None


def rename_models(name: str, models: Mapping[str, str]) -> str:
    """A row or column with every model in it replaced by its counterpart."""
    return MODEL.sub(lambda match: models.get(match[0], match[0]), name)


def masked_counterpart(causal: str) -> str:
    """The masked model of the same shape: A4L3 of C4L3."""
    return CAUSAL.sub(r"A\1L\2", causal)


def untrained(model: str) -> str:
    """The same model before its first step, as a model of its own; its weights need not be random."""
    return f"{model}-random"


@dataclass(frozen=True)
class Roles:
    """What the models of a run stand for, whatever their names: the paper's are A12L12, A12L1, A3L12 and so on.

    `base`: most common number of heads, then most layers.  `fewest_layers`, `fewest_heads`: the two that the paper
    finds too small; None where no model of the run is smaller than the base in that way.
    """

    models: tuple[str, ...]
    base: str | None
    fewest_layers: str | None
    fewest_heads: str | None
    causal: tuple[str, ...] = ()  # the causal models, which play no other role

    @property
    def small(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(m for m in (self.fewest_layers, self.fewest_heads) if m is not None))

    @property
    def others(self) -> tuple[str, ...]:
        return tuple(m for m in self.models if m not in self.small)

    @property
    def followed(self) -> tuple[str, ...]:
        """The models that are followed through their training: the base model, and the causal one of its shape."""
        return () if self.base is None else (
            self.base, *(model for model in self.causal if masked_counterpart(model) == self.base))

    def layers(self, model: str) -> int:
        return _size(model).layers

    def heads(self, model: str) -> int:
        return _size(model).heads


def _size(model: str) -> Size:
    size = model_size(model)
    if size is None:
        raise ValueError(f"{model!r} is no model of the form A4L3")
    return size


def roles_of(models: Iterable[str]) -> Roles:
    """The roles of models by their names; other names are passed over."""
    sizes = {name: size for name in models if (size := model_size(name)) is not None}
    if not sizes:
        return Roles((), None, None, None)
    common = Counter(size.heads for size in sizes.values())
    base = max(sizes, key=lambda m: (common[sizes[m].heads], sizes[m].layers, sizes[m].heads))
    shallow = min(sizes, key=lambda m: (sizes[m].layers, m))
    narrow = min(sizes, key=lambda m: (sizes[m].heads, -sizes[m].layers, m))
    return Roles(models=tuple(sorted(sizes, key=natural)), base=base,
                 fewest_layers=shallow if sizes[shallow].layers < sizes[base].layers else None,
                 fewest_heads=narrow if sizes[narrow].heads < sizes[base].heads else None)


def find_roles(cells: Iterable[Cell]) -> Roles:
    """Read the models off the rows of the pre-training table."""
    cells = list(cells)
    causal = dict.fromkeys(cell.row for cell in cells if cell.table == NEXT_WORD and model_size(cell.row, CAUSAL))
    return replace(roles_of(dict.fromkeys(cell.row for cell in cells if cell.table == PRETRAINED)),
                   causal=tuple(sorted(causal, key=natural)))
