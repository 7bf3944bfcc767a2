"""What a model learns to predict: the role of an objective, and the registry of those there are.

The training loop, the sentences, their order, the seeds and the schedule are the same for all.  To add an objective: a
class that plays the role, and an entry in OBJECTIVES under the first letter of its models' names.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from transformers import GPT2LMHeadModel

from pcfg_artifact.metrics.models import CAUSAL, MASKED, Shape
from pcfg_artifact.mlm import gpt2, model
from pcfg_artifact.mlm.data import MaskedCorpus, NextWordCorpus, TrainingCorpus
from pcfg_artifact.mlm.forward import MaskedLoss
from pcfg_artifact.mlm.gpt2 import NextWordLoss
from pcfg_artifact.mlm.model import LanguageModel, LayerNorm, MaskedLM, parse_shape
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.system.ragged import Ragged


class Objective(Protocol):
    """How models for one kind of prediction are built and trained."""

    def config(self, shape: Shape, *, n_words: int, width: int, max_length: int, dropout: float, initial_scale: float,
               layer_norm: LayerNorm) -> Any:
        """transformers' config of a model of this shape."""
        ...

    def build(self, config: Any, seed: int) -> LanguageModel:
        """The model with random weights, from (seed, shape) alone."""
        ...

    def corpus(self, sentences: Ragged, *, n_words: int, masking: Masking, **options: Any) -> TrainingCorpus:
        """The sentences with what is predicted in them; `options` are those of every TrainingCorpus."""
        ...

    def loss(self, network: Any) -> torch.nn.Module:
        """A module that gives the summed loss of a batch."""
        ...


class MaskedObjective:
    """Some words are hidden, and predicted from both sides: RoBERTa, as in the paper."""

    def config(self, shape: Shape, **options: Any) -> Any:
        return model.build_config(shape, **options)

    def build(self, config: Any, seed: int) -> MaskedLM:
        return model.build_model(config, seed)

    def corpus(self, sentences: Ragged, **options: Any) -> TrainingCorpus:
        return MaskedCorpus(sentences, **options)

    def loss(self, network: MaskedLM) -> torch.nn.Module:
        return MaskedLoss(network)


class NextWordObjective:
    """Every word, and the end, is predicted from the words before it: GPT-2, whose layer norm always comes first."""

    def config(self, shape: Shape, *, layer_norm: LayerNorm = "pre", **options: Any) -> Any:
        return gpt2.build_causal_config(shape, **options)

    def build(self, config: Any, seed: int) -> GPT2LMHeadModel:
        return gpt2.build_causal_model(config, seed)

    def corpus(self, sentences: Ragged, *, n_words: int, masking: Masking, **options: Any) -> TrainingCorpus:
        return NextWordCorpus(sentences, **options)

    def loss(self, network: GPT2LMHeadModel) -> torch.nn.Module:
        return NextWordLoss(network)


OBJECTIVES: dict[str, Objective] = {MASKED: MaskedObjective(), CAUSAL: NextWordObjective()}


def objective_of(name: str) -> Objective:
    """The objective that a model of this name is trained for."""
    return OBJECTIVES[parse_shape(name).mark]


class ModelSettings(Protocol):
    """What a profile says of all its models."""

    @property
    def width(self) -> int: ...
    @property
    def max_length(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    @property
    def initial_scale(self) -> float: ...
    @property
    def layer_norm(self) -> LayerNorm: ...


def config_of(name: str, cfg: ModelSettings, n_words: int) -> Any:
    """transformers' config of a model of a profile; an impossible shape is a ConfigError."""
    return objective_of(name).config(
        parse_shape(name), n_words=n_words, width=cfg.width, max_length=cfg.max_length, dropout=cfg.dropout,
        initial_scale=cfg.initial_scale, layer_norm=cfg.layer_norm)
