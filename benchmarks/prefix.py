"""Speed and memory of reading from left to right: next-word distributions after every prefix of a sentence.

Beside it, on the same sentences: Inside-Outside by our cpu engine, by that of another checkout (--against), and, where
it is installed, genlm-grammar's Earley parser on a grammar that it can hold.  Speeds are per core, by CPU time of the
one thread that works, the best of some rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.parsing import LONGEST, N_SENTENCES, ROUNDS, SHORTEST, alternately, consume, ratio, row
from benchmarks.versions import check_checkout, other_checkout
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import Sampler
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.leaves import Sentence
from pcfg_artifact.parsing.prefix.left_to_right import Prefix, incremental_posteriors, next_words
from pcfg_artifact.system.machine import single_thread
from pcfg_artifact.tools.arguments import load_treebank
from pcfg_artifact.treebank.splits import split
from pcfg_artifact.treebank.tree import Tree

LENGTHS, N_OF_LENGTH = (10, 20, 40, 80, 100), 6
N_POSTERIORS = 10
GENLM = "genlm.grammar"
GENLM_TREES, GENLM_SENTENCES, GENLM_LONGEST = (8, 100, 400, 3_000), 5, 20


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.against is not None:
        check_checkout(args.against)
    with single_thread():
        trees = split(load_treebank(args))
        grammar = learn_pcfg(trees.train)
        sentences = [tree.words() for tree in trees.test if SHORTEST <= len(tree.words()) <= LONGEST][:N_SENTENCES]
        return [*treebank_sentences(grammar, sentences, args.against), *lengths(grammar), *against_genlm(trees.train)]


def treebank_sentences(grammar: PCFG, sentences: Sequence[list[str]], against: Path | None) -> Iterator[dict[str, Any]]:
    mean = np.mean([len(sentence) for sentence in sentences])
    on = (f"{len(sentences)} sentences, mean length {mean:.1f}; I {grammar.n_interminals}, P {grammar.n_preterminals}, "
          f"{len(grammar.binary):,} rules, {grammar.n_words:,} words")

    def inside_outside_pass() -> None:
        consume(iter(inside_outside(grammar, sentences, n_threads=1)))

    best = row("cpu: inside, outside, marginals", on, len(sentences), inside_outside_pass)
    yield best
    ours = row("prefix: next words at all positions", on, len(sentences), partial(read_all, grammar, sentences))
    yield ratio(ours, best)
    if against is not None:
        with other_checkout(against, grammar) as before:
            their_seconds, our_seconds = alternately([lambda: consume(before(sentences)),
                                                      partial(read_all, grammar, sentences)], ROUNDS)
        yield {"what": f"that of {against}: inside, outside, marginals", "on": "the same sentences",
               "sentences/s": len(sentences) / their_seconds, "ms/sentence": 1000 * their_seconds / len(sentences)}
        yield {"what": "prefix, against that checkout", "on": "the same sentences, in turn",
               "ms/sentence": 1000 * our_seconds / len(sentences), "times as long": our_seconds / their_seconds}
    few = sentences[:N_POSTERIORS]
    mean = np.mean([len(sentence) for sentence in few])
    yield row("prefix: posteriors of all spans at all positions", f"{len(few)} sentences, mean length {mean:.1f}",
              len(few), lambda: [list(incremental_posteriors(grammar, sentence)) for sentence in few], 1)


def read_all(grammar: PCFG, sentences: Sequence[Sentence]) -> None:
    for sentence in sentences:
        next_words(grammar, sentence)


def lengths(grammar: PCFG) -> Iterator[dict[str, Any]]:
    """Sampled sentences of one length each; memory of the chart beside that of the process."""
    drawn = Sampler(grammar, 0).draw(0, 20_000).tokens
    before: tuple[int, float] | None = None
    for length in LENGTHS:
        chosen = np.flatnonzero(drawn.lengths == length)[:N_OF_LENGTH]
        if not len(chosen):
            continue
        sentences = [drawn.row(s).astype(np.int64) for s in chosen]
        found = row("prefix: next words at all positions", f"{len(chosen)} sampled sentences of {length} words",
                    len(chosen), partial(read_all, grammar, sentences), 1)
        prefix = Prefix(grammar)
        for w in sentences[0]:
            prefix.extend(int(w))
        found["chart MB"] = round(prefix.n_bytes / 1e6)
        if before is not None:
            found["exponent"] = float(np.log(found["ms/sentence"] / before[1]) / np.log(length / before[0]))
        before = length, found["ms/sentence"]
        yield found


def against_genlm(trees: Sequence[Tree]) -> Iterator[dict[str, Any]]:
    """genlm-grammar on grammars of more and more trees, on sentences of the first of these."""
    if find_spec("genlm") is None or find_spec(GENLM) is None:
        yield {"what": "genlm-grammar: not installed (pip install genlm-grammar)"}
        return
    for n_trees in GENLM_TREES:
        chosen = [tree.words() for tree in trees[:n_trees] if SHORTEST <= len(tree.words()) <= GENLM_LONGEST]
        yield from genlm_grammar(learn_pcfg(trees[:n_trees]), chosen[:GENLM_SENTENCES])


def genlm_grammar(grammar: PCFG, sentences: Sequence[list[str]]) -> Iterator[dict[str, Any]]:
    """Next words at all positions of the same sentences, ours and theirs."""
    on = (f"{len(sentences)} sentences of {', '.join(str(len(s)) for s in sentences)} words; "
          f"{len(grammar.binary):,} rules, {grammar.n_words:,} words")
    best = row("prefix: next words at all positions", on, len(sentences),
               partial(read_all, grammar, sentences))
    yield best
    model = genlm_model(grammar)

    def their_rows() -> list[list[Any]]:
        model.clear_cache()
        contexts = [[("word", grammar.words[w]) for w in grammar.encode(sentence)] for sentence in sentences]
        return [[model.p_next(tuple(words[:t])) for t in range(len(words) + 1)] for words in contexts]

    theirs = ratio(row("genlm-grammar: the same", on, len(sentences), their_rows, 1), best)
    theirs["largest difference"] = max(
        float(np.abs(next_words(grammar, sentence).next_word - dense_rows(model, grammar, found)).max())
        for sentence, found in zip(sentences, their_rows(), strict=True))
    yield theirs


def genlm_model(grammar: PCFG) -> Any:
    """The same grammar as genlm-grammar's Earley language model."""
    from genlm.grammar import CFG, EarleyLM, Float

    names = grammar.nonterminals
    rules = CFG(Float, ("root",), {("word", word) for word in grammar.words})
    for name, p in zip(names, grammar.root, strict=True):
        if p > 0:
            rules.add(p, ("root",), name)
    for (a, b, c), p in zip(grammar.binary, grammar.binary_prob, strict=True):
        rules.add(p, names[a], names[b], names[c])
    for (a, w), p in zip(grammar.lexical, grammar.lexical_prob, strict=True):
        rules.add(p, names[a], ("word", grammar.words[w]))
    # Its sum over the trees of each symbol gives up after 100,000 steps, on treebank grammars long before it converges:
    # next words are then off by up to 0.8.  Its own plain sum, repeated until nothing changes, is exact.
    with patch.object(CFG, "agenda", CFG.naive_bottom_up):
        return EarleyLM(rules)


def dense_rows(model: Any, grammar: PCFG, rows: Sequence[Any]) -> np.ndarray:
    return np.array([[row[token] for token in [*(("word", word) for word in grammar.words), model.eos]]
                     for row in rows])
