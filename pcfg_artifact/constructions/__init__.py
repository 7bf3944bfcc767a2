from pcfg_artifact.constructions.approximate import ApproximateInsideOutside
from pcfg_artifact.constructions.hard import HardAttentionInsideOutside
from pcfg_artifact.constructions.relative import RelativeInsideOutside

__all__ = ["ApproximateInsideOutside", "HardAttentionInsideOutside", "RelativeInsideOutside"]
