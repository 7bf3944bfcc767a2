"""Stage `intervene`: whether the base model uses what probes read from it, beside exact counterfactuals."""

from __future__ import annotations

import numpy as np

from pcfg_artifact.constructions.relative import RelativeInsideOutside
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.interventions.constructed import constructed_metrics, observe_constructed
from pcfg_artifact.interventions.counterfactuals import InterventionData, NothingInQuestion, build
from pcfg_artifact.interventions.effects import SMALLEST_CHANGE
from pcfg_artifact.interventions.experiment import LINEAR, layer_metrics
from pcfg_artifact.metrics.models import middle_layer, untrained
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.parsing.engine import EngineOptions
from pcfg_artifact.probing.probes import build_probes
from pcfg_artifact.run.inputs import Inputs, model_folders, untrained_folder
from pcfg_artifact.run.sections import InterveneConfig, as_json
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine, single_thread
from pcfg_artifact.system.progress import progress
from pcfg_artifact.workers.model_jobs import InterventionContext, LayerJob, intervene_on_layer
from pcfg_artifact.workers.pool import n_processes, run_jobs


def run(cfg: InterveneConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    setup = inputs["probe"].json("setup")
    base, n_layers = setup["base"], setup["models"][setup["base"]]
    grammar = inputs.pcfg()
    try:
        data = build(grammar, inputs.sentences("probe_train"), inputs.sentences("probe_test"),
                     mask_rate=cfg.mask_rate, max_length=cfg.max_length, n_train=cfg.n_train, n_test=cfg.n_test,
                     widths=cfg.widths, n_questions=cfg.n_questions, seed=cfg.seed,
                     options=EngineOptions(n_threads=machine.n_workers))
        metrics = positive_control(cfg, grammar, data)
    except NothingInQuestion as reason:
        if inputs.has_treebank:
            raise
        out.facts["left out"] = str(reason)
        out.write_json("setup", {"config": as_json(cfg), "base": base})
        out.write_metrics([])
        return
    folder, before = model_folders(inputs["pretrain"])[base], untrained_folder(inputs["pretrain"], base)
    middle = middle_layer(n_layers)
    jobs = [LayerJob(untrained(base), before, middle),
            *(LayerJob(base, folder, layer) for layer in range(n_layers + 1))]
    names = tuple(dict.fromkeys((LINEAR, *setup["config"]["probes"])))
    context = InterventionContext(data, build_probes(names, setup["config"]), machine, cfg.seed)
    done = list(progress(run_jobs(intervene_on_layer, jobs, context, n_processes(machine, machine.n_workers)),
                         total=len(jobs), desc="interventions"))
    found = {job: outcome for job, outcome, _ in done}
    out.facts["cpu_seconds"] = {f"{job.model} L{job.layer}": round(seconds, 2) for job, _, seconds in done}
    for job in jobs:
        metrics += [metric.at(model=job.model, layer=job.layer)
                    for metric in layer_metrics(found[job], job.layer == middle)]
    out.write_json("setup", {"config": as_json(cfg), "base": base, "middle": middle,
                             "questions": [[q.sentence, *q.span, q.marginal] for q in data.questions]})
    out.write_metrics(metric.at(seed=cfg.seed) for metric in metrics)


@single_thread()
def positive_control(cfg: InterveneConfig, grammar: PCFG, data: InterventionData) -> list[Metric]:
    """The same measurement in the transformer of Theorem 3.2, whose coordinates are known."""
    short = [q for q in data.questions if len(data.test[q.sentence].words) <= cfg.constructed_length]
    if not short:
        raise NothingInQuestion(f"no span in question lies in a sentence of at most {cfg.constructed_length} words; "
                                f"raise intervene.constructed_length or intervene.n_questions")
    step = max(len(short) // cfg.n_constructed, 1)  # of all widths
    model = RelativeInsideOutside(grammar, cfg.constructed_length)
    questions = short[::step][:cfg.n_constructed]
    if not any((np.abs(q.change) >= SMALLEST_CHANGE).any() for q in questions):  # NaN is none
        raise NothingInQuestion("none of the spans in question changes a masked word, so that there is no effect to "
                                "find; raise intervene.n_constructed or intervene.n_questions")
    found = constructed_metrics(*observe_constructed(model, data.test, questions))
    return [metric.at(model="theorem_3.2") for metric in found]
