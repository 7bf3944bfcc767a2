"""Trees from a grammar: Labelled Recall and Viterbi, labels and probabilities of spans, second attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import njit

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.chart_index import cell_bounds, n_cells
from pcfg_artifact.parsing.charts import Chart, SpanChart, SpanScores, entries_of
from pcfg_artifact.parsing.constraints import Constraints, all_forbidden, forbidden_cells
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions, each_chart, engine_for, leaf_span_scores, leaves_of
from pcfg_artifact.parsing.leaves import Sentence, word_ids
from pcfg_artifact.system.machine import available_memory
from pcfg_artifact.treebank.tree import Tree

Span = tuple[int, int]
Result = TypeVar("Result")

NO_LABEL = "X"  # of a span to which the grammar gives no probability
RARE_BELOW = 100  # second attempt at a sentence without probability: words seen this often or less become signatures
AT_ONCE = 256  # sentences parsed before those without probability are tried again


def labelled_recall(chart: SpanChart, constraints: Constraints | None = None) -> list[Span]:
    """The 2L-1 spans of the binary tree with the largest sum of s(i, j) = max over A of the marginal.

    Ties take the first split, so a sentence without probability becomes right-branching.
    constraints: those of the chart, so that a span that they forbid does not enter the tree as one that scores 0.
    """
    scores = chart.span_scores()
    if constraints:
        starts, ends = (bounds[forbidden_cells(chart.length, constraints)] for bounds in cell_bounds(chart.length))
        scores[starts, ends] = -np.inf
    return best_binary_tree(scores)


def best_binary_tree(scores: np.ndarray) -> list[Span]:
    """Spans, parents first, of the binary tree with the largest sum of scores[i, j]; ties take the first split."""
    splits = _best_splits(np.ascontiguousarray(scores, np.float64))
    return _split_tree(len(scores) - 1, lambda i, j: int(splits[i, j]))


def _split_tree(length: int, split: Callable[[int, int], int]) -> list[Span]:
    """Spans, parents first, of the binary tree whose spans are split so."""
    spans: list[Span] = []
    todo = [(0, length)] if length > 0 else []
    while todo:
        i, j = todo.pop()
        spans.append((i, j))
        if j - i > 1:
            k = split(i, j)
            todo += [(k, j), (i, k)]
    return spans


@njit(nogil=True, cache=True)
def _best_splits(scores: np.ndarray) -> np.ndarray:
    """(L+1, L+1) split of the best tree over every span."""
    length = len(scores) - 1
    best = np.zeros((length + 1, length + 1))
    split = np.zeros((length + 1, length + 1), np.int32)
    for j in range(1, length + 1):
        best[j - 1, j] = scores[j - 1, j]
        for i in range(j - 2, -1, -1):
            highest, split[i, j] = -np.inf, i + 1
            for k in range(i + 1, j):
                total = best[i, k] + best[k, j]
                if total > highest:
                    highest, split[i, j] = total, k
            best[i, j] = scores[i, j] + highest
    return split


# ---- trees that know nothing but the length of the sentence ----------------------------------------------------------


def right_branching(length: int) -> list[Span]:
    return _split_tree(length, lambda i, j: i + 1)


def left_branching(length: int) -> list[Span]:
    return _split_tree(length, lambda i, j: j - 1)


def balanced(length: int) -> list[Span]:
    """Every span is halved; of an odd number of words the left half has one more."""
    return _split_tree(length, lambda i, j: (i + j + 1) // 2)


def random_branching(length: int, rng: np.random.Generator) -> list[Span]:
    """Every span is split at a random fencepost."""
    return _split_tree(length, lambda i, j: int(rng.integers(i + 1, j)))


# Every trivial parser by name, in the order of tables; those that draw nothing ignore the generator.
BASELINES: dict[str, Callable[[int, np.random.Generator], list[Span]]] = {
    "right": lambda length, rng: right_branching(length), "left": lambda length, rng: left_branching(length),
    "balanced": lambda length, rng: balanced(length), "random": random_branching}


# ---- the most probable tree ------------------------------------------------------------------------------------------


def viterbi(grammar: PCFG, sentence: Sentence, options: EngineOptions = DEFAULT,
            constraints: Constraints | None = None) -> tuple[float, Tree | None]:
    """Log probability of the most probable tree and that tree, with grammar labels; (-inf, None) if there is none.

    The words of the tree are those that the grammar read: rare and unknown ones are signatures.
    constraints: spans that the tree must have or may not have, as in inside_outside.
    """
    return next(viterbi_trees(grammar, [sentence], options, None if constraints is None else [constraints]))


def viterbi_trees(grammar: PCFG, sentences: Sequence[Sentence], options: EngineOptions = DEFAULT,
                  constraints: Sequence[Constraints] | None = None) -> Iterator[tuple[float, Tree | None]]:
    """The same for every sentence, in order."""
    ids = [word_ids(grammar, sentence) for sentence in sentences]
    check_memory(max(map(len, ids), default=0), grammar.n_interminals)
    forbidden = all_forbidden(grammar, [len(words) for words in ids], constraints)
    found = engine_for(grammar, options).best_trees(leaves_of(grammar, ids), forbidden)
    for words, (log_prob, nodes) in zip(ids, found, strict=True):
        named = [(grammar.nonterminals[a], i, j) for a, i, j in nodes.tolist()]
        yield log_prob, _tree_of_nodes(named, [grammar.words[w] for w in words]) if named else None


def check_memory(length: int, n_interminals: int) -> None:
    """Refuse a sentence whose dense chart may not fit, instead of being killed half-way."""
    per_cell = 8 * n_interminals
    needed, available = per_cell * n_cells(length), available_memory()
    if needed > available:
        fits = int((2 * available / max(per_cell, 1)) ** 0.5)
        raise UsageError(f"the most probable tree of a sentence of {length:,} words needs {needed / 1e9:.1f} GB with "
                         f"this grammar ({n_interminals:,} in-terminals), {available / 1e9:.1f} GB are free; leave out "
                         f"sentences of more than about {fits:,} words, or use Labelled Recall (--decode recall)")


def _tree_of_nodes(nodes: Sequence[tuple[str, int, int]], words: Sequence[str]) -> Tree:
    """The tree of (label, i, j) in preorder."""
    stack: list[Tree] = []
    for label, i, j in reversed(nodes):  # from the right, children are complete before their parent
        stack.append(Tree(label, word=words[i]) if j - i == 1 else Tree(label, (stack.pop(), stack.pop())))
    return stack[0]


# ---- labels and probabilities of spans -------------------------------------------------------------------------------


def labelled_tree(grammar: PCFG, chart: SpanChart, words: Sequence[str]) -> Tree | None:
    """The Labelled-Recall tree over `words`, each span with its most probable symbol; None for the empty sentence."""
    nodes = [(_best_label(grammar, chart, i, j), i, j) for i, j in labelled_recall(chart)]
    return _tree_of_nodes(nodes, words) if nodes else None


def _best_label(grammar: PCFG, chart: SpanChart, i: int, j: int) -> str:
    entries = entries_of(chart, i, j)
    marginals = chart.entry_marginals[entries]
    if not marginals.max(initial=0.0) > 0:
        return NO_LABEL
    return grammar.nonterminals[chart.symbols[entries][int(np.argmax(marginals))]]


def best_labels(grammar: PCFG, chart: Chart) -> list[list[Any]]:
    """[i, j, label, log inside, log outside, marginal] of every span; label None and logs None where none is possible.

    The label is the one with the largest marginal, or with the largest inside value where all marginals are 0.
    """
    inside, outside, marginals = chart.entry_log_inside, chart.entry_log_outside, chart.entry_marginals
    found: list[list[Any]] = []
    for i, j in zip(*(bounds.tolist() for bounds in cell_bounds(chart.length)), strict=True):
        entries = entries_of(chart, i, j)
        possible = np.flatnonzero(inside[entries] > -np.inf) + entries.start
        if not len(possible):
            found.append([i, j, None, None, None, 0.0])
            continue
        best = int(possible[np.lexsort((inside[possible], marginals[possible]))[-1]])
        found.append([i, j, grammar.nonterminals[chart.symbols[best]], round(float(inside[best]), 4),
                      round(float(outside[best]), 4) if outside[best] > -np.inf else None,
                      round(min(float(marginals[best]), 1.0), 6)])
    return found


class Node(NamedTuple):
    """A node of a tree with grammar labels and the posterior probability of (label, start, end)."""

    start: int
    end: int
    label: str
    marginal: float


def node_marginals(grammar: PCFG, chart: Chart, tree: Tree) -> list[Node]:
    """The nodes of a tree over the chart's sentence, children before parents; 0 where the grammar has no such label."""
    return [Node(i, j, label, _marginal(grammar, chart, label, i, j)) for label, i, j in tree.labelled_spans()]


def _marginal(grammar: PCFG, chart: Chart, label: str, i: int, j: int) -> float:
    symbol = grammar.nonterminal_index.get(label)
    entries = entries_of(chart, i, j)
    found = chart.entry_marginals[entries][chart.symbols[entries] == symbol]
    return float(found[0]) if len(found) else 0.0


# ---- sentences without probability -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Parse:
    """The Labelled-Recall tree of one sentence, and how it was found.

    n_attempts: 1 = as it stands; 2 = with rare words as signatures; 3 = no probability either way, right-branching.
    """

    spans: list[Span]
    scores: np.ndarray  # (L+1, L+1) span scores behind the tree
    log_prob: float
    n_attempts: int


def parses(grammar: PCFG, sentences: Sequence[Sequence[str]], options: EngineOptions = DEFAULT) -> Iterator[Parse]:
    """A parse for every sentence, given as words, in order."""
    def each(grammar: PCFG, ids: Sequence[np.ndarray], options: EngineOptions) -> Iterator[SpanScores | Chart]:
        return leaf_span_scores(grammar, leaves_of(grammar, ids), options)

    return with_retries(grammar, sentences, lambda chart, _, n_attempts: parse_of(chart, n_attempts), options, each)


def with_retries(grammar: PCFG, sentences: Sequence[Sequence[str]], read: Callable[[Any, np.ndarray, int], Result],
                 options: EngineOptions = DEFAULT, each: Callable[..., Iterator[Chart | SpanScores]] = each_chart
                 ) -> Iterator[Result]:
    """read(chart, word ids, n_attempts) of every sentence, given as words, in order; `each` makes the charts."""
    for begin in range(0, len(sentences), AT_ONCE):
        block = sentences[begin:begin + AT_ONCE]
        ids = [grammar.encode(words) for words in block]
        found, failed = [], []
        for s, chart in enumerate(each(grammar, ids, options)):
            found.append(read(chart, ids[s], 1))
            if chart.log_prob == -np.inf:
                failed.append(s)
        again = [grammar.encode(block[s], rare_below=RARE_BELOW) for s in failed]
        for s, words, chart in zip(failed, again, each(grammar, again, options), strict=True):
            found[s] = read(chart, words, 2 if chart.log_prob > -np.inf else 3)
        yield from found


def parse_of(chart: SpanChart | SpanScores, n_attempts: int) -> Parse:
    scores = chart.span_scores()
    return Parse(best_binary_tree(scores), scores, chart.log_prob, n_attempts)
