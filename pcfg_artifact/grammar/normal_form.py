"""Grammars as people write them, brought to our normal form with every sentence's probability kept; trees taken back.

Three steps.  Rules with more than two items are factored from the left, and words between symbols get a pre-terminal of
their own: each new symbol has one rule, of probability 1.  Chains of unary rules are summed: with U[A, B] = P(A -> B),
the sum over all chains from A to B, of any length, is (1 - U)^-1 [A, B].  A symbol that then heads both rules over two
symbols and rules over words becomes two, chosen with the probability of either kind where it is used.

`grammar` has the sums.  `best` has, in place of each sum over chains, its largest term, so that its most probable tree
is the most probable tree of the grammar as it was written.  Both have the same symbols, rules and words.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from functools import lru_cache

import numpy as np

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.written import Word, WrittenGrammar
from pcfg_artifact.treebank.binarise import FACTORED
from pcfg_artifact.treebank.tree import Tree

Right = tuple[str, str] | Word  # of a rule in normal form
Weights = dict[str, dict[Right, float]]  # by head, then by what stands on the right


@lru_cache(maxsize=8)
def normal_form(written: WrittenGrammar) -> NormalForm:
    """The normal form of a grammar, made once."""
    return NormalForm(written)


class NormalForm:
    """One written grammar in normal form."""

    def __init__(self, written: WrittenGrammar) -> None:
        self.written = written
        written.check()
        self._names = {name for name, _ in written.symbols()} | {p.head for p in written.productions}
        self._factored: dict[tuple[str, tuple[str, ...]], str] = {}
        self._preterminal: dict[Word, str] = {}
        self._unary: dict[str, dict[str, float]] = defaultdict(dict)
        self._rules: Weights = defaultdict(dict)
        for production in written.productions:
            if production.prob > 0:
                self._factor(production.head, production.items, production.prob)
        self._refuse_endless()
        self._chains = {head: best_chains(head, self._unary) for head in [*self._rules, *self._unary]}
        sums = self._summed()
        largest: Weights = {head: {right: self._best_chain(head, right)[0] for right in rights}
                            for head, rights in sums.items()}
        self._parts = {head: self._kinds(head, rights) for head, rights in sums.items()}
        self._original = {name: head for head, parts in self._parts.items() for name, _, _ in parts}
        self.grammar = self._typed(sums, is_proper=written.is_proper, origin=written)
        self.best = self._typed(largest, is_proper=False, origin=None)

    @property
    def has_chains(self) -> bool:
        """Whether a tree in normal form may stand for several trees of the written grammar."""
        return bool(self._unary)

    # ---- from written rules ----------------------------------------------------------------------------------------

    def _factor(self, head: str, items: tuple[str | Word, ...], prob: float) -> None:
        if len(items) == 1:
            item = items[0]
            if isinstance(item, Word):
                self._rules[head][item] = prob
            else:
                self._unary[head][item] = prob
            return
        symbols = [self._symbol_of(item) for item in items]
        left = symbols[0]
        for n in range(1, len(symbols) - 1):
            key = (head, tuple(symbols[:n + 1]))
            if key not in self._factored:
                self._factored[key] = self._fresh(f"{head}{FACTORED}<{'_'.join(symbols[:n + 1])}>")
                self._rules[self._factored[key]][left, symbols[n]] = 1.0
            left = self._factored[key]
        self._rules[head][left, symbols[-1]] = prob

    def _symbol_of(self, item: str | Word) -> str:
        if not isinstance(item, Word):
            return item
        if item not in self._preterminal:
            self._preterminal[item] = self._fresh(f"'{item.text}'")
            self._rules[self._preterminal[item]][item] = 1.0
        return self._preterminal[item]

    def _fresh(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    # ---- unary chains ----------------------------------------------------------------------------------------------

    def _refuse_endless(self) -> None:
        """Refuse unary rules that lead to nothing but unary rules: the sum over their chains has no end."""
        ends = set(self._rules)
        while more := {head for head, below in self._unary.items() if head not in ends and ends & below.keys()}:
            ends |= more
        endless = [head for head in self._unary if head not in ends]
        if endless:
            raise GrammarError(f"the unary rules of {endless[0]!r} lead to no word and no rule with two items, so that "
                               f"no tree of it ends; give {endless[0]!r} another rule, or take it out", endless[0])

    def _summed(self) -> Weights:
        """P(head => right) over all unary chains between."""
        linked = list(dict.fromkeys([*self._unary, *(b for below in self._unary.values() for b in below)]))
        index = {name: n for n, name in enumerate(linked)}
        unary = np.zeros((len(linked), len(linked)))
        for head, below in self._unary.items():
            for name, p in below.items():
                unary[index[head], index[name]] = p
        closure = np.linalg.inv(np.eye(len(linked)) - unary)
        sums: Weights = {}
        for head in dict.fromkeys([*self._rules, *self._unary]):
            total: dict[Right, float] = defaultdict(float)
            for bottom in self._chains[head]:  # of what no chain reaches, the inverse may hold dust
                share = closure[index[head], index[bottom]] if head in index else 1.0
                for right, p in self._rules[bottom].items() if bottom in self._rules else ():
                    total[right] += share * p
            scale = sum(total.values()) if self.written.is_proper else 1.0
            if not abs(scale - 1.0) <= 1e-6:
                raise GrammarError(f"the unary rules of {head!r} all but never end: the sum over their chains loses "
                                   f"its digits ({scale:.9f} in place of 1); lower the probability of its cycle", head)
            sums[head] = {right: p / scale for right, p in total.items()}
        return sums

    def _best_chain(self, head: str, right: Right) -> tuple[float, tuple[str, ...]]:
        """The most probable unary chain from a head to a right side: its probability and its symbols, head first."""
        chains = [(p * self._rules[bottom][right], chain) for bottom, (p, chain) in self._chains[head].items()
                 if right in self._rules.get(bottom, ())]
        return max(chains, key=lambda chain: chain[0])

    # ---- symbols over words, and over symbols ----------------------------------------------------------------------

    def _kinds(self, head: str, rights: dict[Right, float]) -> list[tuple[str, float, bool]]:
        """The one or two symbols that stand for a head: name, share of its probability, whether over words."""
        over_words = sum(p for right, p in rights.items() if isinstance(right, Word))
        over_symbols = sum(p for right, p in rights.items() if not isinstance(right, Word))
        if over_symbols and over_words:
            return [(head, over_symbols, False), (self._fresh(f"{head}:word"), over_words, True)]
        return [(head, 1.0, bool(over_words))]

    def _typed(self, weights: Weights, *, is_proper: bool, origin: WrittenGrammar | None) -> PCFG:
        binary, lexical = [], []
        for head, rights in weights.items():
            for name, share, is_over_words in self._parts[head]:
                for right, p in rights.items():
                    if isinstance(right, Word) != is_over_words:
                        continue
                    if isinstance(right, Word):
                        lexical.append((name, right.text, p / share))
                    else:
                        binary += [(name, left, other, p / share * left_share * other_share)
                                   for left, left_share, _ in self._parts[right[0]]
                                   for other, other_share, _ in self._parts[right[1]]]
        root = {name: p * share for head, p in self.written.root.items() for name, share, _ in self._parts[head]}
        return PCFG.from_rules(root, binary, lexical, is_proper=is_proper, written=origin)

    # ---- trees back ------------------------------------------------------------------------------------------------

    def restored(self, tree: Tree) -> Tree:
        """The tree of the written grammar: factored nodes taken out, the most probable unary chains put in.

        A word that stands between symbols in its rule is a leaf without a label.
        """
        factored, bare = set(self._factored.values()), set(self._preterminal.values())
        done: list[tuple[str, list[Tree]]] = []  # name in the factored grammar, and the trees that stand for the node
        for node in reversed(list(tree.preorder())):  # from the right, children are complete before their parent
            name = self._original[node.label]
            if node.word is not None:
                parts = [Tree("", word=node.word)] if name in bare else \
                    [_under(self._best_chain(name, Word(node.word))[1], (), node.word)]
            else:
                (left, parts), (right, others) = done.pop(), done.pop()
                parts = parts + others
                if name not in factored:
                    parts = [_under(self._best_chain(name, (left, right))[1], tuple(parts), None)]
            done.append((name, parts))
        (_, (restored,)), = done
        return restored if self.written.start is None else Tree(self.written.start, (restored,))


def _under(chain: tuple[str, ...], children: tuple[Tree, ...], word: str | None) -> Tree:
    tree = Tree(chain[-1], children, word)
    for name in reversed(chain[:-1]):
        tree = Tree(name, (tree,))
    return tree


def best_chains(head: str, unary: dict[str, dict[str, float]]) -> dict[str, tuple[float, tuple[str, ...]]]:
    """For every symbol that unary rules reach from a head: the most probable chain to it, and its probability."""
    found: dict[str, tuple[float, tuple[str, ...]]] = {}
    waiting: list[tuple[float, tuple[str, ...]]] = [(-1.0, (head,))]
    while waiting:  # Dijkstra's search: products of probabilities never grow
        negative, chain = heapq.heappop(waiting)
        if chain[-1] in found:
            continue
        found[chain[-1]] = -negative, chain
        for name, p in unary.get(chain[-1], {}).items():
            if name not in found:
                heapq.heappush(waiting, (negative * p, (*chain, name)))
    return found
