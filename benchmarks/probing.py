"""The linear probe beside scikit-learn, both run to convergence, on hidden states of a run's models."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression

from pcfg_artifact.errors import UsageError
from pcfg_artifact.metrics.models import middle_layer, roles_of
from pcfg_artifact.mlm.encoders import load_encoder
from pcfg_artifact.probing.corpus import Corpus, Layer
from pcfg_artifact.probing.linear_probe import LinearProbe
from pcfg_artifact.probing.representations import extract
from pcfg_artifact.probing.settings import EOS, TREEBANK
from pcfg_artifact.probing.standardisation import Standardisation
from pcfg_artifact.probing.tasks import Task, span_task, tree_task
from pcfg_artifact.run.corpora import read_corpora
from pcfg_artifact.run.inputs import Inputs, model_folders
from pcfg_artifact.run.stage_folder import MANIFEST

N_TRAIN, N_TEST, WIDTHS = 100, 500, (2, 5)  # treebank sentences; of the spans whose marginals are asked for
ITERATIONS = 5_000  # of either solver, at most: enough for both to stop by themselves
READ = ("grammar", "sample", "marginals", "pretrain", "probe")  # stages
Fit = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, bool]]


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each model (the base and the smallest), layer (first, middle, last) and task: score and processor
    seconds of both."""
    folder: Path | None = args.run
    if folder is None:
        raise UsageError("bench probing reads the models of a run; give --run RUN, such as runs/smoke")
    for stage in READ:
        if not (folder / stage / MANIFEST).is_file():
            raise UsageError(f"{folder} has no finished stage {stage}; give --run the folder of a run that is past "
                             f"probing")
    inputs = Inputs({stage: folder / stage for stage in READ}, "")
    options = inputs["probe"].json("setup")["config"]
    corpora, _ = read_corpora(inputs, options["max_length"], N_TRAIN, N_TEST)
    tasks = [(tree_task(EOS), "sentence_f1"), *((span_task(width), "pearson") for width in WIDTHS)]
    folders = model_folders(inputs["pretrain"])
    roles, texts = roles_of(folders), (corpora[TREEBANK.training.name], corpora[TREEBANK.test.name])
    return [row for name in (roles.base, *roles.small) if name is not None
            for layer, train, test in probed_layers(folders[name], *texts)
            for row in (compare(f"{name} L{layer}", task, metric, train, test) for task, metric in tasks)]


def probed_layers(folder: Path, *corpora: Corpus) -> Iterator[tuple[Any, ...]]:
    model, tokenizer = load_encoder(folder)
    states = [extract(model, tokenizer, corpus.sentences, lambda _, shape: np.empty(shape, np.float32))
              for corpus in corpora]
    n_layers = len(states[0]) - 1
    for layer in dict.fromkeys((0, middle_layer(n_layers), n_layers)):
        yield layer, *(Layer(corpus, found[layer]) for corpus, found in zip(corpora, states, strict=True))


def compare(where: str, task: Task, metric: str, train: Layer, test: Layer) -> dict[str, Any]:
    row: dict[str, Any] = {"model and layer": where, "task": task.name, "score": metric}
    (x, targets), (x_test, test_targets) = task.examples(train), task.examples(test)
    scores = []
    for name, fit in (("ours", ours), ("scikit-learn", scikit_learn)):
        started = time.process_time()
        predicted, has_converged = fit(x, targets, x_test)
        row[f"{name}, s"] = time.process_time() - started
        scores.append(next(score.value for score in task.score(test.corpus, test_targets, predicted)
                           if score.metric == metric and score.convention in ("", "PB")))
        row[name] = scores[-1] if has_converged else f"{scores[-1]:.4g} (no convergence)"
    return {**row, "difference": scores[0] - scores[1]}


def ours(x: np.ndarray, targets: np.ndarray, x_test: np.ndarray) -> tuple[np.ndarray, bool]:
    fitted = LinearProbe(linear_iterations=ITERATIONS).fit(x, targets)
    return fitted.predict(x_test)[0], fitted.has_converged


def scikit_learn(x: np.ndarray, targets: np.ndarray, x_test: np.ndarray) -> tuple[np.ndarray, bool]:
    """In float64; its logistic regression stops when no component of the gradient of the mean loss is above 1e-6."""
    standardise = Standardisation.of(x)
    inputs = standardise(x).astype(np.float64)
    if np.issubdtype(targets.dtype, np.integer):
        fitted = LogisticRegression(max_iter=ITERATIONS, tol=1e-6).fit(inputs, targets)
        return fitted.predict(standardise(x_test)), int(max(fitted.n_iter_)) < ITERATIONS
    return LinearRegression().fit(inputs, targets).predict(standardise(x_test)), True
