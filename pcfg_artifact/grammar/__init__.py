"""The PCFG: its value type, estimation from trees, unknown words, expectations, sampling."""

from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees

__all__ = ["PCFG", "learn_pcfg", "sample_trees"]
