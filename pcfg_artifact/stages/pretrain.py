"""Stage 6: RoBERTa models trained on sampled sentences, each measured against the exact optimum of its grammar."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from pcfg_artifact import cells, storage
from pcfg_artifact.artifacts import Metric, Ragged, StageDir
from pcfg_artifact.config import PretrainConfig
from pcfg_artifact.errors import StageError
from pcfg_artifact.grammar import PCFG
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.mlm.model import Shape, build_config
from pcfg_artifact.progress import progress
from pcfg_artifact.stages.pretrain_gap import against_optimum
from pcfg_artifact.workers.launch import run_workers
from pcfg_artifact.workers.trainer import FACTS, FINISHED, STEP

# Settings that leave a trained model what it is: how it is judged, and how its work is shared out.
NOT_OF_A_MODEL = ("models", "n_exact", "exact_max_length", "batch_tokens", "processes", "save_every")
N_CURVE_POINTS = 50  # of the training curve, as metric rows; every step is in training.json


def run(cfg: PretrainConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    grammar = inputs.pcfg()
    check_shards(grammar, inputs)
    write_jobs(cfg, grammar, inputs, out, machine)
    train_models(cfg, out, machine)
    metrics = []
    for name in cfg.models:
        result = out.json(f"models/{name}/{FINISHED.removesuffix('.json')}")
        metrics += curve_metrics(name, result, cfg)
        facts = out.path(f"scratch/{name}/{FACTS}")
        out.facts[name] = {**storage.read_json(facts), "sentences_left_out": result["n_left_out"]}
    out.write_metrics(metrics + against_optimum(cfg, grammar, inputs, out, machine))


def check_shards(grammar: PCFG, inputs: Inputs) -> None:
    """Refuse sentences that were drawn from another grammar."""
    for split in ("pretraining", "validation"):
        largest = int(inputs.sentences(split).values.max())
        if largest >= grammar.n_words:
            raise StageError(f"the vocabulary of {inputs['sample'].path(split)} does not match the grammar: it holds "
                             f"word {largest}, expected 0 to {grammar.n_words - 1}; run `--from sample --force`")


def write_jobs(cfg: PretrainConfig, grammar: PCFG, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    """One job file per model: all that a training process needs to know.  Models of other jobs are removed."""
    sample = inputs["sample"]
    shards = {split: str(sample.path(f"{split}/tokens").resolve()) for split in ("pretraining", "validation")}
    data = [storage.sha256(Path(f"{shard}.{part}.npy")) for shard in shards.values() for part in Ragged._fields]
    settings = {key: value for key, value in asdict(cfg).items() if key not in NOT_OF_A_MODEL}
    made_from = {name: storage.fingerprint([name, settings, grammar.words, data]) for name in cfg.models}
    for name in cfg.models:
        # An impossible shape is refused before anything is trained, or removed.
        build_config(Shape.parse(name), n_words=grammar.n_words, width=cfg.width, max_length=cfg.max_length,
                     dropout=cfg.dropout, initial_scale=cfg.initial_scale)
    remove_other_models(made_from, out)
    for name in cfg.models:
        out.write_json(f"scratch/{name}/job", {
            "model": name, "made_from": made_from[name], "config": asdict(cfg), "words": grammar.words,
            "device": machine.device, "final": str(out.path(f"models/{name}").resolve()), **shards})


def remove_other_models(made_from: dict[str, str], out: StageDir) -> None:
    """Remove models and checkpoints that the profile does not name, or that were made from something else."""
    for name in {path.name for part in ("models", "scratch") for path in out.path(part).glob("*")}:
        job = out.json(f"scratch/{name}/job") if out.has(f"scratch/{name}/job.json") else {}
        if job.get("made_from", "") != made_from.get(name):
            for part in ("models", "scratch"):
                if out.path(f"{part}/{name}").exists():
                    shutil.rmtree(out.path(f"{part}/{name}"))


def train_models(cfg: PretrainConfig, out: StageDir, machine: Machine) -> None:
    """Train what is not finished: on GPUs one model after another over all of them, on CPUs several side by side."""
    pending = [name for name in cfg.models if not out.has(f"models/{name}/{FINISHED}")]
    on_gpu = machine.device == "cuda"
    n_processes = cfg.processes or (machine.n_gpus or torch.cuda.device_count() if on_gpu else 1)
    n_parallel = 1 if on_gpu else max(1, machine.n_workers // n_processes)
    commands = {name: ("-m", "pcfg_artifact.workers.trainer", str(out.path(f"scratch/{name}/job.json")),
                       f"--processes={n_processes}", f"--parent={os.getpid()}") for name in pending}
    logs = {name: out.path(f"scratch/{name}/worker.log") for name in pending}

    def steps_done() -> int:
        files = (out.path(f"scratch/{name}/{STEP}") for name in pending)
        return sum(int(file.read_text() or 0) for file in files if file.is_file())

    workers = run_workers(commands, logs, n_parallel, steps_done)
    for _ in progress(workers, total=cfg.steps * len(pending), desc="pre-training"):
        pass


def curve_metrics(name: str, result: dict, cfg: PretrainConfig) -> list[Metric]:
    """Perplexities of Table 3, and the curve: training over the steps since the last point, validation where taken."""
    n = result["n_validation"]
    metrics = [Metric(*cells.perplexity(name, split), cfg.seed, math.exp(result[f"{split}_loss"]), n,
                      "perplexity") for split in ("training", "validation")]
    ends = np.unique(np.linspace(0, len(result["losses"]), N_CURVE_POINTS + 1).astype(int))
    for begin, end in pairwise(ends):
        loss = float(np.mean(result["losses"][begin:end]))
        metrics.append(Metric(*cells.loss_curve(name, int(end), "training"), cfg.seed, loss,
                              int(end - begin) * cfg.batch_size, "nats"))
    return metrics + [Metric(*cells.loss_curve(name, step, "validation"), cfg.seed, loss, min(n, cfg.n_curve),
                             "nats") for step, loss in result["validation"]]
