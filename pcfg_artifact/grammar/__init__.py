"""The PCFG: its value type, estimation from trees, unknown words, expectations, sampling."""

from pcfg_artifact import exports

__getattr__, __dir__ = exports(__name__)
