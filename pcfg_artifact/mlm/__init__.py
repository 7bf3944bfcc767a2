"""Masked language models: tokens, data, training, and their distance from the exact optimum."""

from typing import TYPE_CHECKING

from pcfg_artifact.lazy import lazy_exports

if TYPE_CHECKING:
    from pcfg_artifact.mlm.data import MaskedCorpus
    from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
    from pcfg_artifact.mlm.optimum import Gap, exact_predictions, masked_sentences
    from pcfg_artifact.mlm.tokenizer import build_tokenizer
    from pcfg_artifact.mlm.training import Recipe, train

MODULE_OF = {
    "Gap": "optimum",
    "MaskedCorpus": "data",
    "Recipe": "training",
    "build_config": "model",
    "build_model": "model",
    "build_tokenizer": "tokenizer",
    "exact_predictions": "optimum",
    "masked_sentences": "optimum",
    "parse_shape": "model",
    "train": "training",
}
__all__ = ["Gap", "MaskedCorpus", "Recipe", "build_config", "build_model", "build_tokenizer", "exact_predictions",
           "masked_sentences", "parse_shape", "train"]
__getattr__, __dir__ = lazy_exports(__name__, MODULE_OF)
