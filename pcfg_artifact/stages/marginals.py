"""Stage 3: exact span scores, Labelled-Recall trees and log probabilities of every split, and the exact optimum of
masked-word prediction."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.approximation.scores import unigram_probabilities
from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.config import MarginalsConfig
from pcfg_artifact.grammar import PCFG
from pcfg_artifact.grammar.latent import LatentPCFG
from pcfg_artifact.grammar.spectral import learn_spectral
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.parsing import (
    BASELINES,
    CONVENTIONS,
    NAMED_MASKS,
    EngineOptions,
    Parse,
    cell_bounds,
    gold_spans,
    latent_parses,
    masked_log_probs,
    one_mask_log_probs,
    parses,
    perplexity,
    span_f1,
)
from pcfg_artifact.progress import progress
from pcfg_artifact.ragged import Ragged
from pcfg_artifact.seeding import stream
from pcfg_artifact.treebank.binarise import unbinarise
from pcfg_artifact.treebank.tree import Tree
from pcfg_artifact.workers.pool import run_ordered

SCORED = (cells.TREEBANK, cells.SAMPLED)  # settings whose test trees are scored
WIDEST = 20  # words: F1 by width goes up to here
CHUNK = 32  # sentences of a job in a cluster


def run(cfg: MarginalsConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    grammar = inputs.pcfg()
    trees = {split: inputs.trees(split) for split in ("train", "test")}
    sentences: dict[str, Sequence[list[str]]] = {split: [tree.words() for tree in trees[split]] for split in trees}
    for split in ("probe_train", "probe_test"):
        sentences[split] = [[grammar.words[w] for w in row] for row in inputs.sentences(split).rows()]
    missing = [split for split in sentences if not out.has(f"{split}/log_probs.npy")]
    latent = None
    if cfg.target == "latent" and {"train", "test"} & set(missing):
        variant = inputs["grammar"].json("sizes")["variant"]
        latent = learn_spectral(trees["train"], grammar, variant, seed=cfg.seed, progress=progress)
    for split in missing:
        limit = cfg.n_train if split == "train" else len(sentences[split])
        write_scores(split, grammar, latent if split in trees else None, sentences[split], limit, cfg.max_length, out,
                     machine)
    trees["probe_test"] = [unbinarise(tree) for tree in inputs.sampled_trees("probe_test")]
    metrics: list[Metric] = []
    for setting in SCORED:
        split = setting.test.split
        metrics += parsing_metrics(setting.name, trees[split], out.ragged(f"{split}/spans"),
                                   out.array(f"{split}/attempts"), cfg.seed)
    out.write_metrics([*metrics, *optimum_metrics(grammar, inputs.sentences("validation"), cfg, machine)])


def write_scores(split: str, grammar: PCFG, latent: LatentPCFG | None, sentences: Sequence[list[str]], limit: int,
                 max_length: int, out: StageDir, machine: Machine) -> None:
    """`<split>/`, of the first `limit` sentences of at most `max_length` words; others are left out.

    span_scores: a row per sentence, in the order of cell_bounds, empty where left out or without probability; by the
    latent-variable PCFG if it is given.  All else is the PCFG's.
    spans: of the trees, i, j, i, j, ..  attempts: as in Parse, 0 = left out.  log_probs: NaN = left out.
    """
    started = time.monotonic()
    chosen = np.flatnonzero([len(words) <= max_length for words in sentences])[:limit]
    scores, spans = [np.zeros(0)] * len(sentences), [np.zeros(0)] * len(sentences)
    attempts, log_probs = np.zeros(len(sentences), np.uint8), np.full(len(sentences), np.nan)
    found = scored_parses(grammar, latent, [sentences[s] for s in chosen], machine)
    shown = progress(found, total=len(chosen), desc=f"marginals of {split}")
    for s, (parse, span_scores) in zip(chosen, shown, strict=True):
        attempts[s], log_probs[s] = parse.n_attempts, parse.log_prob
        spans[s] = np.array(parse.spans).reshape(-1)
        if parse.n_attempts == 1 and span_scores is not None:
            scores[s] = span_scores[cell_bounds(len(sentences[s]))].astype(np.float32)
    out.write_ragged(f"{split}/span_scores", Ragged.from_rows(scores, np.float32))
    out.write_ragged(f"{split}/spans", Ragged.from_rows(spans, np.int16))
    out.write_array(f"{split}/attempts", attempts)
    out.write_array(f"{split}/log_probs", log_probs)
    if latent is not None:
        n_scored = sum(len(row) > 0 for row in scores)
        out.facts[f"{split} estimates not positive"] = int((attempts == 1).sum()) - n_scored
    out.facts[f"{split} sentences/s"] = len(chosen) / (time.monotonic() - started)


def scored_parses(grammar: PCFG, latent: LatentPCFG | None, sentences: Sequence[list[str]], machine: Machine
                  ) -> Iterator[tuple[Parse, np.ndarray | None]]:
    """The PCFG's parse of every sentence, and the span scores to probe for; None where their estimate is negative."""
    if machine.executor is not None:
        chunks = [sentences[start:start + CHUNK] for start in range(0, len(sentences), CHUNK)]
        return chain.from_iterable(run_ordered(parse_chunk, chunks, (grammar, latent), machine.executor))
    options = EngineOptions(n_threads=machine.n_workers)
    if latent is None:
        return ((parse, parse.scores) for parse in parses(grammar, sentences, options))
    return ((parse, None if chart.is_negative else chart.span_scores())
            for parse, chart in latent_parses(latent, sentences, options))


def parse_chunk(grammars: tuple[PCFG, LatentPCFG | None], sentences: Sequence[list[str]]
                ) -> list[tuple[Parse, np.ndarray | None]]:
    """In a worker of a cluster."""
    return list(scored_parses(*grammars, sentences, Machine("cpu", 1)))


def parsing_metrics(setting: str, trees: Sequence[Tree], spans: Ragged, attempts: np.ndarray, seed: int
                    ) -> Iterator[Metric]:
    """F1 of Inside-Outside and of what knows nothing, and how many sentences had no probability."""
    chosen = np.flatnonzero(attempts > 0).tolist()
    gold = [trees[s] for s in chosen]
    lengths = [len(tree.words()) for tree in gold]
    rng = stream(seed, "random trees", setting)
    predictions: dict[str, Sequence[Iterable[tuple[int, int]]]] = {
        "IO": [[(int(i), int(j)) for i, j in spans.row(s).reshape(-1, 2)] for s in chosen],
        **{name: [parse(n, rng) for n in lengths] for name, parse in BASELINES.items()},
        "ceiling": [gold_spans(tree, binary=True) for tree in gold]}
    for row, predicted in predictions.items():
        for convention in CONVENTIONS:
            for column, (value, n) in cells.f1_columns(span_f1(gold, predicted, convention)).items():
                yield Metric(*cells.parser_score(row, setting, column), seed, value, n, "percent")
    by_length = span_f1(gold, predictions["IO"], "PB").by_length
    for width in range(2, WIDEST + 1):
        if width in by_length:
            yield Metric(*cells.f1_by_width(cells.every_sentence(setting), width), seed, by_length[width], len(gold),
                         "percent")
    counts = {"sentences": int((attempts > 1).sum()), "after retry": int((attempts > 2).sum()),
              "too long": int((attempts == 0).sum())}
    for column, count in counts.items():
        yield Metric(*cells.parser_score("zero_probability", setting, column), seed, count, len(trees), "count")


def optimum_metrics(grammar: PCFG, validation: Ragged, cfg: MarginalsConfig, machine: Machine) -> Iterator[Metric]:
    """Exact perplexity of masked words: the floor for every model, under masks of the kind they are validated with."""
    chosen = np.flatnonzero(validation.lengths <= cfg.mask_max_length)[:cfg.n_masked].tolist()
    sentences = [np.asarray(validation.row(s), np.int64) for s in chosen]
    log_probs = {row: exact_log_probs(grammar, row, sentences, chosen, cfg.seed, machine)
                 for row in ("1-mask", *NAMED_MASKS)}
    log_probs["unigram"] = iter([np.log(unigram_probabilities(grammar, sentences))])
    for row in ("1-mask", "unigram", *NAMED_MASKS):
        values = list(progress(log_probs[row], total=len(sentences), desc=f"optimum: {row}"))
        yield Metric(*cells.optimum(row), cfg.seed, perplexity(values), sum(map(len, values)), "perplexity")


def exact_log_probs(grammar: PCFG, row: str, sentences: Sequence[np.ndarray], indices: Sequence[int], seed: int,
                    machine: Machine) -> Iterator[np.ndarray]:
    """Exact log probability of the masked words of every sentence; row: which masks, or every word alone."""
    if machine.executor is not None:
        starts = range(0, len(sentences), CHUNK)
        chunks = [(sentences[start:start + CHUNK], indices[start:start + CHUNK]) for start in starts]
        return chain.from_iterable(run_ordered(predict_chunk, chunks, (grammar, row, seed), machine.executor))
    options = EngineOptions(n_threads=machine.n_workers)
    if row == "1-mask":
        return one_mask_log_probs(grammar, sentences, options)
    return masked_log_probs(grammar, sentences, NAMED_MASKS[row], seed, indices, options)


def predict_chunk(about: tuple[PCFG, str, int], chunk: tuple[Sequence[np.ndarray], Sequence[int]]) -> list[np.ndarray]:
    """In a worker of a cluster."""
    grammar, row, seed = about
    return list(exact_log_probs(grammar, row, *chunk, seed, Machine("cpu", 1)))
