"""Inside-Outside and what is read from it: trees, scores, masked words."""

from pcfg_artifact import exports

__getattr__, __dir__ = exports(__name__)
