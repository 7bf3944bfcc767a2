"""Which layers a masked model uses: how much worse it predicts where a layer looks everywhere alike, or is left out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.mlm.evaluation import predictions
from pcfg_artifact.mlm.exact_comparison import MaskedSentence
from pcfg_artifact.mlm.model import MaskedLM

TABLE = "layers_used"


@torch.no_grad()
def with_uniform_attention(model: MaskedLM, layer: int) -> MaskedLM:
    """A copy in which every word of the layer, counted from 1, attends to all tokens of its row alike."""
    changed: Any = copy.deepcopy(model)
    query = changed.base_model.encoder.layer[layer - 1].attention.self.query
    query.weight.zero_()  # equal scores
    query.bias.zero_()
    return changed


def without_layer(model: MaskedLM, layer: int) -> MaskedLM:
    """A copy in which the next layer reads what this one would have read."""
    changed: Any = copy.deepcopy(model)
    del changed.base_model.encoder.layer[layer - 1]
    return changed


CHANGES: dict[str, Callable[[MaskedLM, int], MaskedLM]] = {
    "uniform attention": with_uniform_attention, "left out": without_layer}


def share_of_way(loss: float, unigram: float, exact: float) -> float:
    """How much of the way from the unigram loss to that of the optimum a loss has gone, in percent."""
    return 100 * (unigram - loss) / (unigram - exact)


def share_metric(loss: float, unigram: float, exact: float, n: int, **dimensions: Any) -> Metric:
    return Metric(table=TABLE, metric="share_of_way", value=share_of_way(loss, unigram, exact), n=n, unit="percent",
                  **dimensions)


def layer_use(network: MaskedLM, sentences: Sequence[MaskedSentence], unigram: float, exact: float, batch_tokens: int,
              **dimensions: Any) -> list[Metric]:
    """The share of the way of a model, and what it loses of it by each change of each layer, in points."""
    targets = [sentence.words[sentence.positions] for sentence in sentences]

    def loss(changed: MaskedLM) -> float:
        return float(np.concatenate([-rows[np.arange(len(rows)), targets[s]]
                                     for s, rows in predictions(changed, sentences, batch_tokens)]).mean())

    n, whole = sum(map(len, targets)), loss(network)
    kept = {(layer, name): share_of_way(loss(change(network, layer)), unigram, exact)
            for layer in range(1, network.config.num_hidden_layers + 1) for name, change in CHANGES.items()}
    return [share := share_metric(whole, unigram, exact, n, **dimensions),
            *(share.at(layer=layer, group=name, metric="share_lost", value=share.value - value)
              for (layer, name), value in kept.items())]
