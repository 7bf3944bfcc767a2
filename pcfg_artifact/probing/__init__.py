"""Probes: parse trees and span marginals read from hidden states, control tasks, and how far attention heads look."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcfg_artifact.probing.attended_distance import attended_distances
    from pcfg_artifact.probing.corpus import Corpus, Layer
    from pcfg_artifact.probing.linear_probe import LinearProbe
    from pcfg_artifact.probing.probes import PROBES, Probe, build_probes
    from pcfg_artifact.probing.representations import extract
    from pcfg_artifact.probing.targets import decode, relative_depths
    from pcfg_artifact.probing.tasks import control_span_task, control_tree_task, run_task, span_task, tree_task
    from pcfg_artifact.probing.two_layer_probe import TwoLayerProbe

# Public name -> the module that has it: importing one name does not import all of them.
_HOME = {
    "PROBES": "probes", "Corpus": "corpus", "Layer": "corpus", "LinearProbe": "linear_probe", "Probe": "probes",
    "TwoLayerProbe": "two_layer_probe", "attended_distances": "attended_distance", "build_probes": "probes",
    "control_span_task": "tasks", "control_tree_task": "tasks", "decode": "targets", "extract": "representations",
    "relative_depths": "targets", "run_task": "tasks", "span_task": "tasks", "tree_task": "tasks",
}
__all__ = ["PROBES", "Corpus", "Layer", "LinearProbe", "Probe", "TwoLayerProbe", "attended_distances", "build_probes",
           "control_span_task", "control_tree_task", "decode", "extract", "relative_depths", "run_task", "span_task",
           "tree_task"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
