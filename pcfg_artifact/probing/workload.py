"""What the fits of probes will cost, from sizes alone: for the plan that --dry-run prints."""

from __future__ import annotations

from typing import NamedTuple

from pcfg_artifact.probing.linear_probe import LinearProbe
from pcfg_artifact.probing.probes import Probe
from pcfg_artifact.probing.two_layer_probe import TwoLayerProbe

N_LABELS = 25  # relative depths of a treebank: 22 on the embedded one
# Sustained operations a second of a core or a GPU in these products, and seconds that a step of L-BFGS or Adam takes
# however small it is.  The CPU's are measured on 39,137 examples of 128 inputs; no GPU has run this.
OPERATIONS_PER_SECOND = {"cpu": 2.5e10, "cuda": 5e12}
SECONDS_PER_STEP = {"cpu": 1e-4, "cuda": 5e-4}
SOURCE = {"cpu": "measured on narrow models", "cuda": "assumed: no GPU has run this"}


class FittingWork(NamedTuple):
    """Floating-point operations, and steps one after another."""

    operations: float
    steps: int

    def seconds(self, device: str) -> float:
        return self.operations / OPERATIONS_PER_SECOND[device] + self.steps * SECONDS_PER_STEP[device]


def work_of_fit(probe: Probe, n: int, n_inputs: int, *, has_labels: bool, n_seeds: int) -> FittingWork:
    """One fit of n examples, its steps at most as many as its options allow; an unknown probe as linear ones."""
    n_outputs = N_LABELS if has_labels else 1
    if isinstance(probe, LinearProbe):
        axes = 2 * n * n_inputs**2
        if not has_labels:
            return FittingWork(axes, 1)
        return FittingWork(2 * axes + probe.linear_iterations * 4 * n * n_inputs * n_outputs, probe.linear_iterations)
    if isinstance(probe, TwoLayerProbe):
        n_units = probe.n_hidden * n_seeds
        per_epoch = n * n_units * (4 * n_inputs + 6 * n_outputs)
        return FittingWork(probe.epochs * per_epoch, probe.epochs * -(-n // probe.batch_size))
    return work_of_fit(LinearProbe(), n * n_seeds, n_inputs, has_labels=has_labels, n_seeds=1)
