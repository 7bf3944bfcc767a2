"""Constructed transformers as Hugging Face checkpoints: config.json, model.safetensors, their grammar, and a card.

Config and grammar rebuild the construction, and the safetensors file replaces every weight: another machine might
compute other last digits.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from pcfg_artifact.constructions.approximate_relative import ApproximateInsideOutside, MergedInsideOutside
from pcfg_artifact.constructions.hard import HardAttentionInsideOutside
from pcfg_artifact.constructions.relative import RelativeInsideOutside
from pcfg_artifact.constructions.transformer import ConstructedTransformer
from pcfg_artifact.errors import ArtifactError, UsageError
from pcfg_artifact.grammar.pcfg import PCFG

WEIGHTS, CARD = "model.safetensors", "README.md"
TRANSFORM = "transforms."  # prefix of low-rank transforms, by width
CONSTRUCTIONS = {kind.__name__: kind for kind in (HardAttentionInsideOutside, RelativeInsideOutside,
                                                  ApproximateInsideOutside, MergedInsideOutside)}
PAPER = "Do Transformers Parse while Predicting the Masked Word? (Zhao, Panigrahi, Ge, Arora, EMNLP 2023)"


class ConstructedConfig(PreTrainedConfig):
    """construction: the class in pcfg_artifact.constructions; arguments: what it was built with beside the grammar.

    residual_blocks: [name, first coordinate, coordinate after the last] of the residual stream, in order;
    then the same of runs of blocks that have a name of their own.
    computes: what each layer fills, such as ["inside", 3] (spans of 3 words).
    """

    model_type = "pcfg_artifact_constructed"

    def __init__(self, construction: str = "RelativeInsideOutside", arguments: dict[str, Any] | None = None,
                 residual_blocks: list[list[Any]] | None = None, computes: list[list[Any]] | None = None,
                 hidden_size: int = 0, num_hidden_layers: int = 0, num_attention_heads: int = 0, vocab_size: int = 0,
                 **others: Any) -> None:
        self.construction, self.arguments = construction, arguments or {}
        self.residual_blocks, self.computes = residual_blocks or [], computes or []
        self.hidden_size, self.num_hidden_layers = hidden_size, num_hidden_layers
        self.num_attention_heads, self.vocab_size = num_attention_heads, vocab_size
        super().__init__(**others)


class ConstructedModel(PreTrainedModel):
    """A constructed transformer behind the interface of transformers; `transformer` is the construction itself.

    input_ids (batch, words) are word ids of the grammar, -1 for a word that it does not know; attention_mask is 0
    behind the end of a sentence.  The states have rows for BOS (and, in Theorem 3.1, EOS) as well.
    """

    config_class = ConstructedConfig
    config: ConstructedConfig
    main_input_name = "input_ids"

    def __init__(self, config: ConstructedConfig, transformer: ConstructedTransformer) -> None:
        super().__init__(config)
        self.transformer = transformer

    @classmethod
    def of(cls, transformer: ConstructedTransformer) -> ConstructedModel:
        """A construction, ready to be saved."""
        space = transformer.plan.space
        blocks = [[_name(name), space[name].start, space[name].stop] for name in (*space.names, *space.unions)]
        arguments = {name: str(value).removeprefix("torch.") if name == "dtype" else value
                     for name, value in transformer.arguments.items() if name not in ("grammar", "transforms")}
        return cls(ConstructedConfig(
            construction=type(transformer).__name__, arguments=arguments, residual_blocks=blocks,
            computes=[list(layer.computes) for layer in transformer.plan.layers],
            hidden_size=transformer.embedding_dim, num_hidden_layers=transformer.n_layers,
            num_attention_heads=transformer.n_heads, vocab_size=transformer.grammar.n_words,
            architectures=[cls.__name__]), transformer)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, *,
                output_hidden_states: bool = False, **_: Any) -> BaseModelOutput:
        lengths = [input_ids.shape[1]] * len(input_ids) if attention_mask is None else attention_mask.sum(1).tolist()
        sentences = [row[:n].cpu().numpy() for row, n in zip(input_ids, lengths, strict=True)]
        states = list(self.transformer.steps(sentences))
        return BaseModelOutput(last_hidden_state=states[-1],  # type: ignore[arg-type]
                               hidden_states=tuple(states) if output_hidden_states else None)  # type: ignore[arg-type]

    def save_pretrained(self, save_directory: str | os.PathLike, **_: Any) -> None:  # type: ignore[override]
        """config.json, model.safetensors, the grammar and README.md in a folder."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        self.config.save_pretrained(folder)
        self.transformer.grammar.save(folder)
        tensors = dict(self.named_buffers())  # shared ones once
        for width, transform in (getattr(self.transformer, "transforms", None) or {}).items():
            tensors[f"{TRANSFORM}{width}"] = torch.from_numpy(np.ascontiguousarray(transform))
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS,
                  metadata={"format": "pt"})
        (folder / CARD).write_text(card(self.config, self.transformer.grammar), encoding="utf-8")

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *_: Any,  # type: ignore[override]
                        config: ConstructedConfig | None = None, **__: Any) -> ConstructedModel:
        """What save_pretrained wrote; an UsageError names what is missing or does not fit."""
        folder = Path(pretrained_model_name_or_path)
        advice = "; save it again with ConstructedModel.of(transformer).save_pretrained(DIR)"
        try:
            config = config if config is not None else ConstructedConfig.from_pretrained(folder)
            tensors = load_file(folder / WEIGHTS)
            transforms = {int(name.removeprefix(TRANSFORM)): tensors.pop(name).numpy() for name in list(tensors)
                          if name.startswith(TRANSFORM)}
            model = cls(config, _built(config, PCFG.load(folder), transforms))
        except (OSError, SafetensorError, ArtifactError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{folder} holds no constructed transformer ({error}){advice}") from error
        buffers = dict(model.named_buffers())
        for name in sorted(buffers.keys() ^ tensors.keys()):
            problem = "missing" if name in buffers else "no weight of it"
            raise UsageError(f"{folder / WEIGHTS}: {name} is {problem}{advice}")
        for name, buffer in buffers.items():
            if tensors[name].shape != buffer.shape or tensors[name].dtype != buffer.dtype:
                raise UsageError(f"{folder / WEIGHTS}: {name} is {tensors[name].dtype} {tuple(tensors[name].shape)}, "
                                 f"expected {buffer.dtype} {tuple(buffer.shape)}{advice}")
            buffer.copy_(tensors[name])
        return model.eval()


def register_with_transformers() -> None:
    """Make AutoConfig and AutoModel know constructed checkpoints."""
    AutoConfig.register(ConstructedConfig.model_type, ConstructedConfig, exist_ok=True)
    AutoModel.register(ConstructedConfig, ConstructedModel, exist_ok=True)


def _built(config: ConstructedConfig, grammar: PCFG, transforms: dict[int, np.ndarray]) -> ConstructedTransformer:
    if config.construction not in CONSTRUCTIONS:
        raise UsageError(f"the construction {config.construction!r} is unknown; expected one of "
                         f"{', '.join(CONSTRUCTIONS)}")
    arguments = dict(config.arguments)
    if "dtype" in arguments:
        arguments["dtype"] = getattr(torch, arguments["dtype"])
    if transforms:
        arguments["transforms"] = transforms
    return CONSTRUCTIONS[config.construction](grammar, **arguments)


def _name(block: Any) -> str:
    """A block's name as text: ("inside", 2) is "inside 2"."""
    return " ".join(map(str, block)) if isinstance(block, tuple) else str(block)


def card(config: ConstructedConfig, grammar: PCFG) -> str:
    """The text of README.md."""
    options = ", ".join(f"{name}={value!r}" for name, value in config.arguments.items())
    return f"""---
library_name: transformers
tags: [pcfg, inside-outside, constructed]
---

# {config.construction}: a transformer that parses, built weight by weight

No weight is trained. All are read off a PCFG, so that the forward pass computes Inside-Outside; after *{PAPER}*.

- built with: {options}
- sizes: {config.num_hidden_layers} layers, {config.num_attention_heads} heads, {config.hidden_size:,} dimensions
- data: a PCFG with {grammar.n_interminals:,} in-terminals, {grammar.n_preterminals:,} pre-terminals,
  {grammar.n_words:,} words, {len(grammar.binary):,} binary and {len(grammar.lexical):,} lexical rules; it is in
  grammar.json and grammar.npz (`pa.PCFG.load(DIR)`), and has the licence of the treebank that it was learned from
- distance from the optimum: none but rounding for the exact constructions, since their masked-word predictions are
  Inside-Outside's own; an ApproximateInsideOutside is as far from it as its few non-terminals and its rank make it
- the residual stream: `residual_blocks` in config.json names every block; `computes` says what each layer fills

```python
import pcfg_artifact as pa
from transformers import AutoModel

pa.register_with_transformers()
model = AutoModel.from_pretrained(DIR)
inside, outside = model.transformer.read_charts(model.transformer(words))
```
"""
