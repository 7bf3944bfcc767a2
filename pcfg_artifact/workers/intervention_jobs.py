"""Jobs of the stage `intervene`, each in a worker process: one layer of a model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pcfg_artifact.interventions.counterfactuals import InterventionData
from pcfg_artifact.interventions.experiment import LayerOutcome, Masked, intervene
from pcfg_artifact.interventions.run_from_layer import layer_states
from pcfg_artifact.mlm.encoders import load_masked_lm
from pcfg_artifact.probing.probes import Probe
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.workers.pool import device_of


class LayerJob(NamedTuple):
    model: str
    folder: Path
    layer: int


@dataclass(frozen=True, eq=False)
class InterventionContext:
    """What all layers share; the linear probe is among the probes."""

    data: InterventionData
    probes: Mapping[str, Probe]
    machine: Machine
    seed: int

    def outcome(self, folder: Path, layer: int) -> LayerOutcome:
        """The interventions of all probes, and all controls, on one layer of the model in a folder."""
        device, data = device_of(self.machine), self.data
        model = load_masked_lm(folder)[0].to(device)
        train, test = (Masked(seen, marginals, layer_states(model, seen, layer), device) for seen, marginals in
                       ((data.train, data.train_marginals), (data.test, data.test_marginals)))
        return intervene(model, layer, train, test, data.questions, self.probes, self.seed)


def intervene_on_layer(context: InterventionContext, job: LayerJob) -> tuple[LayerJob, LayerOutcome, float]:
    """All methods and controls on one layer of one model, and the processor time."""
    started = time.process_time()
    return job, context.outcome(job.folder, job.layer), time.process_time() - started
