"""The models of a run by their names, and the roles they play: which is the base model, which are too small.

A4L3 is a masked model of 4 heads and 3 layers, C4L3 the causal model of that shape.  A4L3-random is the masked one
before its first step; A4L3-shuffled and A4L3-bigram were trained on texts without syntax, and are controls of what
training on any text brings.  This is the only place that reads such a name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

MASKED, CAUSAL = "A", "C"  # the first letter of a name: what the model was trained for
UNTRAINED = "random"
CONTROL_TEXTS = ("shuffled", "bigram")  # mlm/control_texts.py makes them
NAME = re.compile(rf"([{MASKED}{CAUSAL}])([1-9]\d*)L([1-9]\d*)(?:-({'|'.join((UNTRAINED, *CONTROL_TEXTS))}))?")


class Shape(NamedTuple):
    """What the name of a model says."""

    mark: str
    heads: int
    layers: int
    control: str = ""  # UNTRAINED, or the text of CONTROL_TEXTS that it was trained on; blank: sampled sentences


def shape_of(model: str) -> Shape | None:
    """Heads, layers and kind of a model called A4L3, C4L3 or A4L3-random; None for any other name."""
    match = NAME.fullmatch(model)
    return Shape(match[1], int(match[2]), int(match[3]), match[4] or "") if match else None


def is_trained(model: str, mark: str) -> bool:
    """Whether a name is that of a model of this kind, MASKED or CAUSAL, trained on sampled sentences."""
    shape = shape_of(model)
    return shape is not None and shape.mark == mark and not shape.control


def untrained(model: str) -> str:
    """The same model before its first step, as a model of its own."""
    return f"{model}-{UNTRAINED}"


def trained_on(model: str, text: str) -> str:
    """The model of the same shape that was trained on a text of CONTROL_TEXTS."""
    return f"{model}-{text}"


def masked_counterpart(causal: str) -> str:
    """The masked model of the same shape: A4L3 of C4L3."""
    shape = shape_of(causal)
    if shape is None:
        raise ValueError(f"{causal!r} is no model of the form C4L3")
    return f"{MASKED}{shape.heads}L{shape.layers}"


def middle_layer(n_layers: int) -> int:
    """The one layer that claims on interventions are about, declared beforehand: half of the layers have run."""
    return -(-n_layers // 2)


@dataclass(frozen=True)
class Roles:
    """What the models of a run stand for, whatever their names: the paper's are A12L12, A12L1, A3L12 and so on.

    `base`: most common number of heads, then most layers.  `fewest_layers`, `fewest_heads`: the two that the paper
    finds too small; None where no model of the run is smaller than the base in that way.
    """

    models: tuple[str, ...] = ()
    base: str | None = None
    fewest_layers: str | None = None
    fewest_heads: str | None = None
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

    @property
    def by_layers(self) -> tuple[str, ...]:
        """Models with as many heads as the base, by their number of layers."""
        return tuple(sorted((m for m in self.models if self.heads(m) == self.heads(self.base)), key=self.layers))

    @property
    def by_heads(self) -> tuple[str, ...]:
        """Models with as many layers as the base, by their number of heads."""
        return tuple(sorted((m for m in self.models if self.layers(m) == self.layers(self.base)), key=self.heads))

    @property
    def most_heads(self) -> str | None:
        """The model of the base's layers with the most heads, where that is not the base."""
        model = self.by_heads[-1] if self.base is not None else None
        return None if model == self.base else model

    @property
    def deeper(self) -> tuple[str, ...]:
        """Models with as many heads as the base that are not too small."""
        return tuple(model for model in self.by_layers if model not in self.small)

    def among(self, models: Iterable[str]) -> Roles:
        """The same roles, played by some of the models alone."""
        left = set(models)
        base, shallow, narrow = (m if m in left else None for m in (self.base, self.fewest_layers, self.fewest_heads))
        masked, causal = (tuple(m for m in some if m in left) for some in (self.models, self.causal))
        return Roles(masked, base, shallow, narrow, causal)

    def layers(self, model: str | None) -> int:
        return _known(model).layers

    def heads(self, model: str | None) -> int:
        return _known(model).heads

    def named(self) -> Mapping[str, tuple[str, ...]]:
        """Every role by the name that claims use, and the models that play it."""
        single = {name: (model,) if (model := getattr(self, name)) is not None else ()
                  for name in ("base", "fewest_layers", "fewest_heads", "most_heads")}
        several = ("models", "small", "others", "followed", "deeper", "causal")
        return {**single, **{name: getattr(self, name) for name in several}}


def _known(model: str | None) -> Shape:
    shape = None if model is None else shape_of(model)
    if shape is None:
        raise ValueError(f"{model!r} is no model of the form A4L3")
    return shape


def roles_of(names: Iterable[str]) -> Roles:
    """The roles of trained models by their names; other names are passed over."""
    names = list(dict.fromkeys(names))
    sizes = {name: _known(name) for name in names if is_trained(name, MASKED)}
    causal = tuple(sorted((name for name in names if is_trained(name, CAUSAL)), key=_known))
    if not sizes:
        return Roles(causal=causal)
    common = Counter(size.heads for size in sizes.values())
    base = max(sizes, key=lambda m: (common[sizes[m].heads], sizes[m].layers, sizes[m].heads))
    shallow = min(sizes, key=lambda m: (sizes[m].layers, m))
    narrow = min(sizes, key=lambda m: (sizes[m].heads, -sizes[m].layers, m))
    return Roles(models=tuple(sorted(sizes, key=lambda m: sizes[m])), base=base,
                 fewest_layers=shallow if sizes[shallow].layers < sizes[base].layers else None,
                 fewest_heads=narrow if sizes[narrow].heads < sizes[base].heads else None, causal=causal)
