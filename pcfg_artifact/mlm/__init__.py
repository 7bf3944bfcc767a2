"""Masked language models: tokens, data, training, and their distance from the exact optimum."""

from pcfg_artifact import exports

__getattr__, __dir__ = exports(__name__)
