from pcfg_artifact.grammar.pcfg import PCFG

__all__ = ["PCFG"]
