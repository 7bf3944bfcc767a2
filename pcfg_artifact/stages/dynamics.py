"""Stage: when the base model learns to predict, to hold the tree, and to use it: every kept step of its training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pcfg_artifact import cells
from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.cells import SPAN_WIDTH, TREE_PROBE, TREEBANK, Cell
from pcfg_artifact.config import DynamicsConfig
from pcfg_artifact.corpora import read_corpora
from pcfg_artifact.encoders import kept_folders
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.interventions.effects import Effect
from pcfg_artifact.interventions.learning_curves import half_way_step
from pcfg_artifact.interventions.material import gather
from pcfg_artifact.machine import Machine
from pcfg_artifact.mlm import optimum
from pcfg_artifact.parsing import EngineOptions
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.progress import progress
from pcfg_artifact.workers.intervention_jobs import (
    LOSS,
    MARGINALS,
    TREE,
    CheckpointContext,
    InterventionContext,
    checkpoint_curves,
    curve_unit,
)
from pcfg_artifact.workers.pool import run_jobs

Curves = Mapping[int, Mapping[str, Effect]]  # step -> quantity -> its value


def run(cfg: DynamicsConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    base, asked = inputs["probe"].json("setup")["base"], inputs["intervene"].json("setup")["config"]
    context = build_context(cfg, inputs, machine, base, asked)
    jobs = list(kept_folders(inputs["pretrain"], base).items())
    done = list(progress(run_jobs(checkpoint_curves, jobs, context, machine.n_workers), total=len(jobs),
                         desc=f"{base} while it is trained"))
    found = {step: curves for step, curves, _ in done}
    out.facts["cpu_seconds"] = {f"step {step}": round(seconds, 2) for step, _, seconds in done}
    out.write_metrics([*curve_rows(base, dict(sorted(found.items())), cfg.seed),
                       *half_way_rows(base, found, context.widths, cfg.seed)])


def build_context(cfg: DynamicsConfig, inputs: Inputs, machine: Machine, base: str, asked: Mapping[str, Any]
                  ) -> CheckpointContext:
    grammar, options = inputs.pcfg(), EngineOptions(n_threads=machine.n_workers)
    probe = inputs["probe"].json("setup")["config"]
    material = gather(grammar, inputs.sentences("probe_train"), inputs.sentences("probe_test"),
                      mask_rate=asked["mask_rate"], max_length=asked["max_length"], n_train=cfg.n_train,
                      n_test=cfg.n_test, widths=asked["widths"], n_questions=cfg.n_questions, seed=cfg.seed,
                      options=options)
    masking = Masking(asked["mask_rate"], "mask")
    masked = optimum.masked_sentences(grammar, inputs.sentences("validation"), masking, seed=cfg.seed, n=cfg.n_loss,
                                      max_length=asked["max_length"])
    masked = [sentence for sentence in masked if len(sentence.positions)]
    corpora, _ = read_corpora(inputs, probe["max_length"], cfg.n_train, cfg.n_test)
    best = cells.best_layer(base, TREE_PROBE, TREEBANK.name)
    best_layer = next(int(m.value) for m in inputs["probe"].metrics() if Cell(m.table, m.row, m.column) == best)
    return CheckpointContext(
        InterventionContext(material, probe, machine, cfg.seed), masked,
        list(optimum.exact_predictions(grammar, masked, masking, options)), corpora[TREEBANK.training.name],
        corpora[TREEBANK.test.name], tuple(probe["widths"]), best_layer, cfg.n_attention)


def curve_rows(model: str, curves: Curves, seed: int) -> Iterator[Metric]:
    for step, found in curves.items():
        for quantity, (value, error, n) in found.items():
            for name, number in ((quantity, value), (cells.error_of(quantity), error)):
                if math.isfinite(number):
                    yield Metric(*cells.while_training(model, name, step), seed, number, n, curve_unit(quantity))


def half_way_rows(model: str, curves: Curves, widths: Sequence[int], seed: int) -> Iterator[Metric]:
    """When loss, tree and the marginals of each width had gone half of their way."""
    for quantity in (LOSS, TREE, *(f"{MARGINALS} {SPAN_WIDTH(width)}" for width in widths)):
        step = half_way_step({step: found[quantity].value for step, found in curves.items()})
        if math.isfinite(step):
            yield Metric(*cells.half_way(model, quantity), seed, step, len(curves), "count")
