"""Stage `incremental`: causal models beside exact inference from left to right: next words, and the tree so far.

Next words: every causal model on validation sentences against the exact distribution.  The tree: linear probes on the
states of causal models, of masked ones of the same shape and of untrained ones, with exact inference as the ceiling;
with `beliefs` also what may come next, as exact inference believes it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from pcfg_artifact.approximation.scores import unigram
from pcfg_artifact.errors import StageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.models import masked_counterpart, untrained
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.mlm.encoders import load_causal_lm, load_encoder
from pcfg_artifact.mlm.exact_comparison import word_depths
from pcfg_artifact.mlm.next_word_comparison import (
    next_word_circumstances,
    next_word_gaps,
    next_word_metrics,
    unigram_next_word_loss,
)
from pcfg_artifact.mlm.tokenizer import check_vocabulary
from pcfg_artifact.parsing.prefix.left_to_right import beliefs
from pcfg_artifact.parsing.prefix.tree_facts import (
    IncrementalFacts,
    TreeFacts,
    facts_of_tree,
    facts_so_far,
    incremental_facts,
    settling,
)
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.reading_probe import (
    OF_BELIEF,
    OF_POSTERIOR,
    OF_TREE,
    Questions,
    belief_questions,
    explained,
    late_questions,
    probe_words,
    questions_of,
)
from pcfg_artifact.probing.representations import word_rows
from pcfg_artifact.probing.settings import SAMPLED
from pcfg_artifact.run.inputs import Inputs, model_folders, untrained_folder
from pcfg_artifact.run.sections import IncrementalConfig
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.progress import progress
from pcfg_artifact.system.threads import ordered_map
from pcfg_artifact.workers.hidden_states import states_folder, store_states, stored_layer

PRECISION = "float32"  # of hidden states, which are removed at the end
Fact = TypeVar("Fact")


def run(cfg: IncrementalConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    torch.set_num_threads(machine.n_workers)
    grammar = inputs.pcfg()
    metrics = list(judged_models(cfg, grammar, inputs, out, machine))
    train, test = (read_text(cfg, inputs, text.split, n) for text, n in
                   ((SAMPLED.training, cfg.n_train), (SAMPLED.test, cfg.n_test)))
    now = list(each(partial(facts_so_far, grammar), train.ids, machine))
    read = list(each(partial(incremental_facts, grammar, delays=cfg.delays), test.ids, machine))
    metrics += settled_metrics(test.facts, read)
    questions = {OF_TREE: QuestionSets(tree_questions(cfg, train.facts), tree_questions(cfg, test.facts)),
                 OF_POSTERIOR: QuestionSets(questions_of(now, cfg.widths),
                                            questions_of([fact.now for fact in read], cfg.widths))}
    if cfg.beliefs:
        questions[OF_BELIEF] = QuestionSets(*(
            belief_questions(grammar, list(each(lambda ids: beliefs(grammar, ids)[1:], text.ids, machine)))
            for text in (train, test)))
    metrics += ceiling_metrics(cfg, questions[OF_TREE].test, read)
    corpora = {"train": train.corpus(grammar), "test": test.corpus(grammar)}
    place = states_folder(out.root, machine)
    for name, folder in probed_folders(inputs).items():
        states = place / name
        model, tokenizer = load_encoder(folder)
        store_states(model, tokenizer, corpora, states, precision=PRECISION, max_tokens=cfg.batch_tokens,
                     device=machine.device, progress=progress)
        metrics += probe_metrics(name, int(model.config.num_hidden_layers), corpora, states, questions)
        shutil.rmtree(states)  # before the next model's
    shutil.rmtree(place, ignore_errors=True)
    out.write_metrics(metric.at(seed=cfg.seed) for metric in metrics)


def each(work: Callable[[np.ndarray], Fact], sentences: Sequence[np.ndarray], machine: Machine) -> Iterable[Fact]:
    """Exact inference on every sentence, in order; its kernels release the interpreter."""
    return progress(ordered_map(work, sentences, machine.n_workers), total=len(sentences), desc="facts of trees")


# ---- next words ------------------------------------------------------------------------------------------------------


def judged_models(cfg: IncrementalConfig, grammar: PCFG, inputs: Inputs, out: StageDir,
                  machine: Machine) -> Iterator[Metric]:
    """Every causal model beside the exact next word and the unigram, on the same words."""
    sentences, trees = inputs.sentences("validation"), inputs.sampled_trees("validation")
    chosen = np.flatnonzero(sentences.lengths <= cfg.max_length)[:cfg.n_exact]
    if not len(chosen):
        raise StageError(f"no validation sentence has at most {cfg.max_length} words; raise incremental.max_length")
    words = [np.asarray(sentences.row(int(s)), np.int64) for s in chosen]
    known = next_word_circumstances([word_depths(trees[int(s)].spans(), len(ids))
                                     for s, ids in zip(chosen, words, strict=True)])
    unigram_loss = unigram_next_word_loss(grammar, unigram(grammar), words)
    models = {}
    for name, folder in model_folders(inputs["pretrain"], is_causal=True).items():
        model, tokenizer = load_causal_lm(folder)
        check_vocabulary(tokenizer, grammar.words, str(folder))
        models[name] = model.to(machine.device)
    for name, gap in next_word_gaps(grammar, models, words, cfg.batch_tokens, progress).items():
        out.write_array(f"gap/{name}", np.stack([gap.model, gap.exact, gap.divergence, gap.entropy], axis=1))
        yield from next_word_metrics(gap, unigram_loss, known, name, cfg.seed)


# ---- the tree --------------------------------------------------------------------------------------------------------


class SampledText(NamedTuple):
    """Sampled sentences (word ids) and what is true of their trees."""

    ids: list[np.ndarray]
    facts: list[TreeFacts]

    def corpus(self, grammar: PCFG) -> Corpus:
        """As models read them; only the words are needed."""
        sentences = [[grammar.words[w] for w in ids] for ids in self.ids]
        return Corpus(sentences, trees=(), scores=(), parses=())


class QuestionSets(NamedTuple):
    """The questions of one target at the words of the training sentences and of the test sentences."""

    train: Questions
    test: Questions


def read_text(cfg: IncrementalConfig, inputs: Inputs, split: str, n: int) -> SampledText:
    sentences, trees = inputs.sentences(split), inputs.sampled_trees(split)
    chosen = np.flatnonzero(sentences.lengths <= cfg.max_length)[:n]
    if not len(chosen):
        raise StageError(f"no sentence of {split} has at most {cfg.max_length} words; raise incremental.max_length")
    ids = [np.asarray(sentences.row(int(s)), np.int64) for s in chosen]
    return SampledText(ids, [facts_of_tree(trees[int(s)].spans(), len(words))
                             for s, words in zip(chosen, ids, strict=True)])


def probed_folders(inputs: Inputs) -> dict[str, Path]:
    """Every causal model, its untrained twin, and the masked model of the same shape where the run has one."""
    masked, found = model_folders(inputs["pretrain"]), {}
    for name, folder in model_folders(inputs["pretrain"], is_causal=True).items():
        found[name] = folder
        found[untrained(name)] = untrained_folder(inputs["pretrain"], name)
        counterpart = masked_counterpart(name)
        if counterpart in masked:
            found[counterpart] = masked[counterpart]
    return found


def tree_questions(cfg: IncrementalConfig, facts: Sequence[TreeFacts]) -> Questions:
    """What is asked about the tree that was drawn: at each word, and about spans that ended some words before."""
    spans = [fact.spans for fact in facts]
    return {**questions_of(facts, cfg.widths), **late_questions([spans] * cfg.delays, cfg.widths)}


def ceiling_metrics(cfg: IncrementalConfig, questions: Questions, read: Sequence[IncrementalFacts]) -> Iterator[Metric]:
    """What exact inference explains of the drawn trees, from the words so far and from the whole sentence."""
    later = [[fact.later[k] for fact in read] for k in range(1, cfg.delays + 1)]
    whole = [fact.whole.spans for fact in read]
    answers = {"exact so far": {**questions_of([fact.now for fact in read], cfg.widths),
                                **late_questions(later, cfg.widths)},
               "exact whole": {**questions_of([fact.whole for fact in read], cfg.widths),
                               **late_questions([whole] * cfg.delays, cfg.widths)}}
    for source, predicted in answers.items():
        for question, target in questions.items():
            yield explained(target, predicted[question], model=source, setting=OF_TREE, **vars(question))


def probe_metrics(name: str, n_layers: int, corpora: Mapping[str, Corpus], states: Path,
                  by_target: Mapping[str, QuestionSets]) -> Iterator[Metric]:
    """Every layer of one model: the share of each question's variance that a linear probe explains."""
    rows = {part: word_rows(corpus.lengths)[0] for part, corpus in corpora.items()}
    for target, questions in by_target.items():
        for layer in range(n_layers + 1):
            stored = stored_layer(corpora, states, layer)
            x, x_test = (np.asarray(stored[part].states[rows[part]]) for part in ("train", "test"))
            for question, predicted in probe_words(x, questions.train, x_test).items():
                yield explained(questions.test[question], predicted, model=name, layer=layer, setting=target,
                                **vars(question))


def settled_metrics(trees: Sequence[TreeFacts], read: Sequence[IncrementalFacts]) -> Iterator[Metric]:
    *later, last = settling(trees, read)
    for group, index, found in (*(("span end", k, one) for k, one in enumerate(later)), ("sentence end", None, last)):
        for metric, value, n, unit in (("probability", found.probability, found.n, "fraction"),
                                       ("settled", found.share, found.n, "fraction"),
                                       ("bits", found.bits, found.n_words, "bits")):
            yield Metric(table="settled", group=group, index=index, metric=metric, value=value, n=n, unit=unit)
