"""Stage `marginals`: exact span scores, trees and log probabilities of every split, and the optimum of masked words."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from pcfg_artifact.approximation.scores import unigram_probabilities
from pcfg_artifact.grammar.latent import LatentPCFG
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.spectral import learn_spectral
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.parsing.chart_index import cell_bounds
from pcfg_artifact.parsing.decoding import BASELINES, Parse, parses
from pcfg_artifact.parsing.engine import EngineOptions, sentences_left_to_cpu
from pcfg_artifact.parsing.gpu.arithmetic import stage_options
from pcfg_artifact.parsing.latent_engine import latent_parses
from pcfg_artifact.parsing.masking import masked_log_probs, one_mask_log_probs, perplexity
from pcfg_artifact.parsing.masks import NAMED_MASKS
from pcfg_artifact.parsing.scoring import CONVENTIONS, gold_spans, span_f1
from pcfg_artifact.probing.settings import SAMPLED, TREEBANK, WIDEST
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.sections import MarginalsConfig
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.progress import progress
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.random_streams import stream
from pcfg_artifact.treebank.binarise import unbinarise
from pcfg_artifact.treebank.tree import Tree
from pcfg_artifact.workers.pool import run_ordered

SCORED = {TREEBANK: "PTB", SAMPLED: "PCFG"}  # settings whose test trees are scored, and names of their random streams
ONE_MASK = "one mask"  # every word in turn
CHUNK = 32  # sentences of a job in a cluster


def run(cfg: MarginalsConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    grammar = inputs.pcfg()
    trees = {split: inputs.trees(split) for split in ("train", "test") if inputs.has_treebank}
    sentences: dict[str, Sequence[list[str]]] = {split: [tree.words() for tree in trees[split]] for split in trees}
    for split in ("probe_train", "probe_test"):
        sentences[split] = [[grammar.words[w] for w in row] for row in inputs.sentences(split).rows()]
    missing = [split for split in sentences if not out.has(f"{split}/log_probs.npy")]
    lengths = [len(words) for split in missing for words in sentences[split] if len(words) <= cfg.max_length]
    options = stage_options(grammar, lengths, machine.device, machine.n_workers, cfg.backend)
    out.facts["engine"] = options.backend
    latent = None
    if cfg.target == "latent" and {"train", "test"} & set(missing):
        variant = inputs["grammar"].json("sizes")["variant"]
        latent = learn_spectral(trees["train"], grammar, variant, seed=cfg.seed, progress=progress)
    for split in missing:
        limit = cfg.n_train if split == "train" else len(sentences[split])
        write_scores(split, grammar, latent if split in trees else None, sentences[split], limit, cfg.max_length, out,
                     machine, options)
    trees["probe_test"] = [unbinarise(tree) for tree in inputs.sampled_trees("probe_test")]
    metrics: list[Metric] = []
    for setting, name in SCORED.items():
        if setting.test.split not in trees:
            continue
        split, rng = setting.test.split, stream(cfg.seed, "random trees", name)
        found = parsing_metrics(trees[split], out.ragged(f"{split}/spans"), out.array(f"{split}/attempts"), rng)
        metrics += [metric.at(setting=setting.name, seed=cfg.seed) for metric in found]
    out.write_metrics([*metrics, *optimum_metrics(grammar, inputs.sentences("validation"), cfg, machine)])
    out.facts["sentences left to the engine cpu"] = sentences_left_to_cpu(grammar)


def write_scores(split: str, grammar: PCFG, latent: LatentPCFG | None, sentences: Sequence[list[str]], limit: int,
                 max_length: int, out: StageDir, machine: Machine, options: EngineOptions) -> None:
    """`<split>/`, of the first `limit` sentences of at most `max_length` words; others are left out.

    span_scores: a row per sentence, in the order of cell_bounds, empty where left out or without probability; by the
    latent-variable PCFG if it is given.  All else is the PCFG's.
    spans: of the trees, i, j, i, j, ..  attempts: as in Parse, 0 = left out.  log_probs: NaN = left out.
    """
    started = time.monotonic()
    chosen = np.flatnonzero([len(words) <= max_length for words in sentences])[:limit]
    scores, spans = [np.zeros(0)] * len(sentences), [np.zeros(0)] * len(sentences)
    attempts, log_probs = np.zeros(len(sentences), np.uint8), np.full(len(sentences), np.nan)
    found = scored_parses(grammar, latent, [sentences[s] for s in chosen], machine, options)
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


def scored_parses(grammar: PCFG, latent: LatentPCFG | None, sentences: Sequence[list[str]], machine: Machine,
                  options: EngineOptions) -> Iterator[tuple[Parse, np.ndarray | None]]:
    """The PCFG's parse of every sentence, and the span scores to probe for; None where their estimate is negative."""
    if machine.executor is not None:
        chunks = [sentences[start:start + CHUNK] for start in range(0, len(sentences), CHUNK)]
        return chain.from_iterable(run_ordered(parse_chunk, chunks, (grammar, latent), machine.executor))
    if latent is None:
        return ((parse, parse.scores) for parse in parses(grammar, sentences, options))
    return ((parse, None if chart.is_negative else chart.span_scores())
            for parse, chart in latent_parses(latent, sentences, options))


def parse_chunk(grammars: tuple[PCFG, LatentPCFG | None], sentences: Sequence[list[str]]
                ) -> list[tuple[Parse, np.ndarray | None]]:
    """In a worker of a cluster."""
    return list(scored_parses(*grammars, sentences, Machine("cpu", 1), EngineOptions(n_threads=1)))


def parsing_metrics(trees: Sequence[Tree], spans: Ragged, attempts: np.ndarray, rng: np.random.Generator
                    ) -> Iterator[Metric]:
    """F1 of Inside-Outside and of what knows nothing, and how many sentences had no probability."""
    chosen = np.flatnonzero(attempts > 0).tolist()
    gold = [trees[s] for s in chosen]
    lengths = [len(tree.words()) for tree in gold]
    predictions: dict[str, Sequence[Iterable[tuple[int, int]]]] = {
        "IO": [[(int(i), int(j)) for i, j in spans.row(s).reshape(-1, 2)] for s in chosen],
        **{name: [parse(n, rng) for n in lengths] for name, parse in BASELINES.items()},
        "ceiling": [gold_spans(tree, binary=True) for tree in gold]}
    for parser, predicted in predictions.items():
        for convention in CONVENTIONS:
            yield from span_f1(gold, predicted, convention).metrics("parsers", model=parser)
    for width, f1 in span_f1(gold, predictions["IO"], "PB").by_length.items():
        if 2 <= width <= WIDEST:
            yield Metric(table="parsers", model="IO", convention="PB", width=width, metric="f1", value=f1, n=len(gold),
                         unit="percent")
    for name, holds in (("zero_probability", attempts > 1), ("zero_probability_after_retry", attempts > 2),
                        ("too_long", attempts == 0)):
        yield Metric(table="parsers", model="IO", metric=name, value=int(holds.sum()), n=len(trees), unit="count")


def optimum_metrics(grammar: PCFG, validation: Ragged, cfg: MarginalsConfig, machine: Machine) -> Iterator[Metric]:
    """Exact perplexity of masked words: the floor for every model, under masks of the kind they are validated with."""
    chosen = np.flatnonzero(validation.lengths <= cfg.mask_max_length)[:cfg.n_masked].tolist()
    sentences = [np.asarray(validation.row(s), np.int64) for s in chosen]
    options = stage_options(grammar, map(len, sentences), machine.device, machine.n_workers, cfg.backend)
    log_probs = {("exact", masks): exact_log_probs(grammar, masks, sentences, chosen, cfg.seed, machine, options)
                 for masks in (ONE_MASK, *NAMED_MASKS)}
    log_probs["unigram", ""] = iter([np.log(unigram_probabilities(grammar, sentences))])
    for (model, masks), found in log_probs.items():
        values = list(progress(found, total=len(sentences), desc=f"optimum: {masks or model}"))
        yield Metric(table="optimum", model=model, input=masks, metric="perplexity", seed=cfg.seed,
                     value=perplexity(values), n=sum(map(len, values)), unit="perplexity")


def exact_log_probs(grammar: PCFG, masks: str, sentences: Sequence[np.ndarray], indices: Sequence[int], seed: int,
                    machine: Machine, options: EngineOptions) -> Iterator[np.ndarray]:
    """Exact log probability of the masked words of every sentence."""
    if machine.executor is not None:
        starts = range(0, len(sentences), CHUNK)
        chunks = [(sentences[start:start + CHUNK], indices[start:start + CHUNK]) for start in starts]
        return chain.from_iterable(run_ordered(predict_chunk, chunks, (grammar, masks, seed), machine.executor))
    if masks == ONE_MASK:
        return one_mask_log_probs(grammar, sentences, options)
    return masked_log_probs(grammar, sentences, NAMED_MASKS[masks], seed, indices, options)


def predict_chunk(about: tuple[PCFG, str, int], chunk: tuple[Sequence[np.ndarray], Sequence[int]]) -> list[np.ndarray]:
    """In a worker of a cluster."""
    grammar, masks, seed = about
    return list(exact_log_probs(grammar, masks, *chunk, seed, Machine("cpu", 1), EngineOptions(n_threads=1)))
