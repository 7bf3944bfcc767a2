"""Stage `sample`: sentences drawn from the grammar, in the four splits that training and probing read."""

from __future__ import annotations

from pcfg_artifact.grammar.sampling import Sampler
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.sections import SampleConfig
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.random_streams import derive_seed
from pcfg_artifact.workers.shards import write_shard

WITH_TREES = ("validation", "probe_train", "probe_test")  # pre-training never looks at trees: not stored


def run(cfg: SampleConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    grammar = inputs.pcfg()
    sizes = {"pretraining": cfg.n_pretraining, "validation": cfg.n_validation,
             "probe_train": cfg.n_probe_train, "probe_test": cfg.n_probe_test}
    metrics = []
    for split, n in sizes.items():
        sampler = Sampler(grammar, derive_seed(cfg.seed, "sample", split), cfg.max_length)
        drawn = write_shard(out.path(split), sampler, 0, n, with_rules=split in WITH_TREES,
                            n_workers=machine.n_workers)
        metrics += [Metric(table="sample", group=split, metric=metric, seed=cfg.seed, value=value, n=n, unit=unit)
                    for metric, value, unit in (("mean_length", drawn.n_tokens / n, "words"),
                                                ("longest", drawn.longest, "words"),
                                                ("rejected", drawn.n_rejected, "count"))]
    out.write_metrics(metrics)
