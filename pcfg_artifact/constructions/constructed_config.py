"""What a constructed transformer is, as a Hugging Face config: theorem, sizes, grammar, named blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from transformers import PreTrainedConfig

from pcfg_artifact.grammar.pcfg import PCFG

ARRAYS = ("root", "binary", "binary_prob", "lexical", "lexical_prob", "symbol_counts", "word_counts")
NAMES = ("interminals", "preterminals", "words")


class ConstructedConfig(PreTrainedConfig):
    """construction: the class in pcfg_artifact.constructions; arguments: what it was built with beside the grammar.

    residual_blocks: [name, first coordinate, coordinate after the last] of the residual stream, in order;
    then the same of runs of blocks that have a name of their own.
    computes: what each layer fills, such as ["inside", 3] (spans of 3 words).  grammar: names and rules, exact.
    """

    model_type = "pcfg_artifact_constructed"

    def __init__(self, construction: str = "RelativeInsideOutside", arguments: dict[str, Any] | None = None,
                 grammar: dict[str, Any] | None = None, residual_blocks: list[list[Any]] | None = None,
                 computes: list[list[Any]] | None = None, hidden_size: int = 0, num_hidden_layers: int = 0,
                 num_attention_heads: int = 0, vocab_size: int = 0, **others: Any) -> None:
        self.construction, self.arguments, self.grammar = construction, arguments or {}, grammar or {}
        self.residual_blocks, self.computes = residual_blocks or [], computes or []
        self.hidden_size, self.num_hidden_layers = hidden_size, num_hidden_layers
        self.num_attention_heads, self.vocab_size = num_attention_heads, vocab_size
        super().__init__(**others)


def grammar_as_json(grammar: PCFG) -> dict[str, Any]:
    """Names and numbers; JSON keeps every bit of a float64."""
    arrays = {name: getattr(grammar, name).tolist() for name in ARRAYS if getattr(grammar, name) is not None}
    return {**{name: list(getattr(grammar, name)) for name in NAMES}, **arrays, "is_proper": grammar.is_proper}


def grammar_from_json(saved: dict[str, Any]) -> PCFG:
    """What grammar_as_json gave; a GrammarError, KeyError, TypeError or ValueError for anything else."""
    arrays: dict[str, Any] = {}
    for name in ARRAYS:
        if name in saved:
            shape = (-1, 3) if name == "binary" else (-1, 2) if name == "lexical" else (-1,)
            is_index = name in ("binary", "lexical")
            arrays[name] = np.asarray(saved[name], np.int32 if is_index else np.float64).reshape(shape)
    for name in ("symbol_counts", "word_counts"):
        if name in arrays and all(float(x).is_integer() for x in saved[name]):
            arrays[name] = arrays[name].astype(np.int64)
    interminals, preterminals, words = (tuple(saved[name]) for name in NAMES)
    return PCFG(interminals=interminals, preterminals=preterminals, words=words, is_proper=bool(saved["is_proper"]),
                **arrays)
