"""The paper's transformers, weight by weight: one module per theorem."""

from typing import TYPE_CHECKING

from pcfg_artifact.constructions.registration import register_when_loaded
from pcfg_artifact.lazy import lazy_exports

if TYPE_CHECKING:
    from pcfg_artifact.constructions.approximate_relative import ApproximateInsideOutside
    from pcfg_artifact.constructions.constructed_config import ConstructedConfig
    from pcfg_artifact.constructions.constructed_model import ConstructedModel
    from pcfg_artifact.constructions.hard import HardAttentionInsideOutside
    from pcfg_artifact.constructions.relative import RelativeInsideOutside
    from pcfg_artifact.constructions.transformer import ConstructedTransformer

MODULE_OF = {
    "ApproximateInsideOutside": "approximate_relative",
    "ConstructedConfig": "constructed_config",
    "ConstructedModel": "constructed_model",
    "ConstructedTransformer": "transformer",
    "HardAttentionInsideOutside": "hard",
    "RelativeInsideOutside": "relative",
}
__all__ = ["ApproximateInsideOutside", "ConstructedConfig", "ConstructedModel", "ConstructedTransformer",
           "HardAttentionInsideOutside", "RelativeInsideOutside"]
__getattr__, __dir__ = lazy_exports(__name__, MODULE_OF)
register_when_loaded()
