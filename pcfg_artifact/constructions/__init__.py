"""The paper's transformers, weight by weight: one module per theorem."""

from pcfg_artifact import exports

__getattr__, __dir__ = exports(__name__)
