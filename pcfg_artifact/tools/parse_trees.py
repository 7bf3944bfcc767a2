"""Trees of sentences for `parse`: by Labelled Recall or Viterbi, over the words as they were written."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.normal_form import normal_form
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.best_trees import kbest
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.decoding import (
    NO_LABEL,
    RARE_BELOW,
    Node,
    labelled_tree,
    node_marginals,
    viterbi,
    with_retries,
)
from pcfg_artifact.parsing.engine import EngineOptions, each_chart
from pcfg_artifact.parsing.forest import SpanEntropies
from pcfg_artifact.parsing.gpu.arithmetic import stage_options
from pcfg_artifact.system.machine import available_cores
from pcfg_artifact.treebank.binarise import unbinarise
from pcfg_artifact.treebank.tree import Tree

RIGHT_BRANCHING = 3  # the attempt after which there is no tree of the grammar


class Scored(NamedTuple):
    """A tree with grammar labels and how sure the grammar is of it; what was not computed is None.

    n_attempts as in decoding.Parse, 0: an empty sentence.  log_prob: of the sentence; tree_log_prob: of the most
    probable tree; nodes: each with its posterior probability.  best: the most probable trees with their log
    probabilities; entropies: of the tree given the sentence.
    """

    tree: Tree | None
    n_attempts: int
    log_prob: float | None = None
    tree_log_prob: float | None = None
    nodes: list[Node] | None = None
    best: list[tuple[float, Tree]] | None = None
    entropies: SpanEntropies | None = None

    def rows(self, n_words: int) -> Iterator[tuple[Any, ...]]:
        """Lines of the tables of --kbest and --entropy, without the number of the sentence."""
        for rank, (log_prob, tree) in enumerate(self.best or (), start=1):
            yield rank, f"{log_prob:.12g}", tree
        if self.entropies is not None and self.tree is not None:
            bits = self.entropies.total / math.log(2) + 0.0
            yield f"{bits:.12g}", f"{bits / n_words:.12g}", self.tree

    def as_json(self, words: Sequence[str]) -> dict[str, Any]:
        """Plain values; a log probability of minus infinity is null."""
        bits = None if self.entropies is None else self.entropies.spans / math.log(2)
        values = {"log_prob": self.log_prob, "tree_log_prob": self.tree_log_prob,
                  "entropy_bits": None if self.entropies is None else self.entropies.total / math.log(2)}
        found: dict[str, Any] = {"words": list(words), "tree": None if self.tree is None else str(self.tree),
                 "attempts": self.n_attempts,
                 **{name: value if np.isfinite(value) else None for name, value in values.items() if value is not None}}
        if self.nodes is not None:
            found["spans"] = [node._asdict() if bits is None or not np.isfinite(bits[node.start, node.end]) else
                              {**node._asdict(), "entropy_bits": float(bits[node.start, node.end])}
                              for node in self.nodes]
        if self.best is not None:
            found["best"] = [{"log_prob": log_prob, "tree": str(tree)} for log_prob, tree in self.best]
        return found


def retried(attempts: Counter[int], otherwise: str = "right-branching") -> str:
    """How many sentences were parsed, and how many only at a second attempt or not at all."""
    n = attempts.total() - attempts[0]
    return (f"{n:,} sentence{'' if n == 1 else 's'}; {attempts[2] + attempts[3]:,} without probability, "
            f"{attempts[3]:,} still so with words seen {RARE_BELOW} times or less taken as unknown ({otherwise})")


def engine_options(args: argparse.Namespace, grammar: PCFG, sentences: Sequence[Sequence[str]]) -> EngineOptions:
    """The engine that --backend and --device ask for; of a GPU's, the faster one."""
    if args.backend == "auto":
        return stage_options(grammar, map(len, sentences), args.device, available_cores())
    return EngineOptions(backend=args.backend, device=args.device)


def recall_trees(grammar: PCFG, sentences: Sequence[list[str]], args: argparse.Namespace, *, with_marginals: bool,
                 with_entropy: bool = False) -> Iterator[Scored]:
    def read(chart: Chart, _: np.ndarray, n_attempts: int) -> Scored:
        tree = labelled_tree(grammar, chart, [""] * chart.length)
        if tree is None:
            return Scored(None, 0, chart.log_prob, nodes=[])
        return Scored(tree, n_attempts, chart.log_prob,
                      nodes=node_marginals(grammar, chart, tree) if with_marginals else [],
                      entropies=SpanEntropies.of(grammar, chart) if with_entropy else None)

    scored = with_retries(grammar, sentences, read, engine_options(args, grammar, sentences))
    for words, found in zip(sentences, scored, strict=True):
        yield found if found.tree is None else found._replace(tree=with_words(found.tree, words))


def best_trees(grammar: PCFG, sentences: Sequence[list[str]], args: argparse.Namespace) -> Iterator[Scored]:
    """The most probable trees of every sentence, none where it has no probability."""
    form = None if grammar.written is None or not args.unbinarise else normal_form(grammar.written)
    if form is not None and form.has_chains:
        raise UsageError("the grammar has rules with one symbol on the right, so that each tree of its normal form "
                         "stands for several of yours, and their order is not that of yours; leave out --unbinarise")
    for words in sentences:
        n_attempts, found = 1, kbest(grammar, [grammar.encode(words)], args.kbest)[0]
        if words and not found:
            n_attempts, found = 2, kbest(grammar, [grammar.encode(words, rare_below=RARE_BELOW)], args.kbest)[0]
        if args.unbinarise:
            found = [(log_prob, unbinarise(tree) if form is None else form.restored(tree)) for log_prob, tree in found]
        found = [(log_prob, with_words(tree, words)) for log_prob, tree in found]
        yield Scored(found[0][1] if found else None, (n_attempts if found else RIGHT_BRANCHING) * bool(words),
                     tree_log_prob=found[0][0] if found else -np.inf, best=found)


def original_trees(grammar: PCFG, sentences: Sequence[list[str]], args: argparse.Namespace) -> Iterator[Scored]:
    """The most probable trees of the grammar as it was written, or as the treebank behind it has them."""
    form = None if grammar.written is None else normal_form(grammar.written)
    options = engine_options(args, grammar, sentences)
    for words in sentences:
        if not words:
            yield Scored(None, 0)
            continue
        _, best, tree, n_attempts = viterbi_tree(grammar if form is None else form.best, words, options)
        if n_attempts < RIGHT_BRANCHING:
            tree = unbinarise(tree) if form is None else form.restored(tree)
        yield Scored(with_words(tree, words), n_attempts, tree_log_prob=best)


def viterbi_trees(grammar: PCFG, sentences: Sequence[list[str]], args: argparse.Namespace, *, with_marginals: bool
                  ) -> Iterator[Scored]:
    options = engine_options(args, grammar, sentences)
    for words in sentences:
        ids, best, tree, n_attempts = viterbi_tree(grammar, words, options)
        if not words:
            yield Scored(None, 0, -np.inf, best, [])
            continue
        log_prob, nodes = -np.inf, []
        if with_marginals:
            chart = next(each_chart(grammar, [ids], options))
            log_prob, nodes = chart.log_prob, node_marginals(grammar, chart, tree)
        yield Scored(with_words(tree, words), n_attempts, log_prob, best, nodes)


def viterbi_tree(grammar: PCFG, words: list[str], options: EngineOptions) -> tuple[np.ndarray, float, Tree, int]:
    """Word ids as they were read, log probability of the tree, the tree, and the attempt that gave it."""
    ids = np.zeros(0, np.int32)
    for n_attempts, rare_below in ((1, None), (2, RARE_BELOW)):
        ids = grammar.encode(words, rare_below=rare_below)
        best, tree = viterbi(grammar, ids, options)
        if tree is not None:
            return ids, best, tree, n_attempts
    return ids, -np.inf, right_branching_tree(words), RIGHT_BRANCHING


def right_branching_tree(words: Sequence[str]) -> Tree:
    """The tree of a sentence to which the grammar gives no probability."""
    tree = Tree(NO_LABEL, (), words[-1] if words else "")
    for word in reversed(words[:-1]):
        tree = Tree(NO_LABEL, (Tree(NO_LABEL, (), word), tree))
    return tree


def with_words(tree: Tree, words: Sequence[str]) -> Tree:
    """The same tree over the words as they were written."""
    stack: list[Tree] = []
    left = list(words)
    for node in reversed(list(tree.preorder())):  # from the right, children are complete before their parent
        if node.is_preterminal:
            stack.append(Tree(node.label, word=left.pop()))
        else:
            stack.append(Tree(node.label, tuple(stack.pop() for _ in node.children)))
    return stack[0]
