"""Probes: parse trees and span marginals read from hidden states, control tasks, and how far attention heads look."""

from pcfg_artifact import exports

__getattr__, __dir__ = exports(__name__)
