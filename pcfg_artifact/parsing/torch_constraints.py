"""Constraints in the `torch` engine: forbidden entries of a padded batch, by width; none where nothing is forbidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from pcfg_artifact.parsing.chart_index import cell_bounds
from pcfg_artifact.parsing.constraints import Forbidden
from pcfg_artifact.parsing.cpu_kernels.rule_index import RuleIndex


class Constrained(NamedTuple):
    """A sentence by its leaves (L, P), and what its trees may not use."""

    leaves: np.ndarray
    forbidden: Forbidden


class Masks:
    """Where tensors (symbols, starts, sentences) of a width are forbidden: in-terminals, and pre-terminals at width 1.

    Kept as width -> symbol, start and sentence of every forbidden entry; widths without any are absent.
    """

    def __init__(self, batch: Sequence[Constrained], grammar: RuleIndex, device: torch.device) -> None:
        found: dict[int, list[np.ndarray]] = {}
        n_interminals = grammar.n_interminals
        for n, (leaves, forbidden) in enumerate(batch):
            if forbidden.is_empty:
                continue
            starts, ends = cell_bounds(len(leaves))
            cells, symbols = np.nonzero(forbidden.by_cell(n_interminals + grammar.n_preterminals))
            widths = (ends - starts)[cells]
            is_typed = (symbols < n_interminals) == (widths > 1)
            for width in np.unique(widths[is_typed]):
                of_width = is_typed & (widths == width)
                symbol = symbols[of_width] - (n_interminals if width == 1 else 0)
                found.setdefault(int(width), []).append(
                    np.stack([symbol, starts[cells[of_width]], np.full(of_width.sum(), n)]))
        self._by_width = {width: torch.as_tensor(np.concatenate(places, axis=1), device=device)
                          for width, places in found.items()}

    def fill(self, values: torch.Tensor, width: int, empty: float) -> None:
        """Set the forbidden entries of a width to `empty`, in place."""
        if width in self._by_width:
            symbol, start, sentence = self._by_width[width]
            values[symbol, start, sentence] = empty
