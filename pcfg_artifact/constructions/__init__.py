from pcfg_artifact.constructions.relative import RelativeInsideOutside

__all__ = ["RelativeInsideOutside"]
