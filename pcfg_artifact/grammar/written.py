"""A PCFG as people write it: rules with any number of symbols and words on the right, and perhaps with weights."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pcfg_artifact.errors import GrammarError

MASS_TOLERANCE = 1e-9  # sums of up to ~10^5 probabilities in float64 stay far below this
MOST_NULLABLE = 12  # symbols of one rule that may yield nothing: each doubles the rules that replace it
ITERATIONS = 200  # critical systems gain a bit each time, all others double their digits
CLOSE = 1e-13  # of a solution, relative
ROOT = "ROOT"  # heads the root distribution where it is written as rules


class Word(NamedTuple):
    """A word on the right side of a rule; symbols are plain strings."""

    text: str


class Production(NamedTuple):
    """head -> items, with its probability."""

    head: str
    items: tuple[str | Word, ...]
    prob: float

    def __str__(self) -> str:
        return rule_text(self.head, *self.items)


def rule_text(head: str, *items: str | Word) -> str:
    """A rule for a message: one line, whatever its symbols are called."""
    names = [repr(item.text) if isinstance(item, Word) else item if item.isprintable() else repr(item)
             for item in (head, *items)]
    return " ".join([names[0], "->", *names[1:]])


@dataclass(frozen=True, eq=False)
class WrittenGrammar:
    """root: probability of the symbol at the top.  start: what stands above it in trees, None for nothing.

    A grammar that is not proper may have rules of one symbol that sum to less than 1.
    notes: what was changed when it was read, for a person.
    """

    root: Mapping[str, float]
    productions: tuple[Production, ...]
    start: str | None = None
    is_proper: bool = True
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, root: Mapping[str, float], productions: Iterable[Production], start: str | None = None, *,
           is_proper: bool = True) -> WrittenGrammar:
        """From rules in any order, the same one perhaps several times: their probabilities are added.

        Rules with nothing on the right are removed, with every sentence's probability kept (`_without_empty_rules`).
        """
        written = cls(dict(root), _added(productions), start, is_proper)
        return written if all(rule.items for rule in written.productions) else _without_empty_rules(written)

    @classmethod
    def weighted(cls, root: Mapping[str, float], productions: Iterable[Production], start: str | None = None
                 ) -> WrittenGrammar:
        """From rules with any weights: the probability of a tree is the product of its weights, over that of all trees.

        Refused where the sum over all trees is infinite.
        """
        rules = _added(productions)
        index = _index(root, rules)
        terms = [(index[rule.head], tuple(index[x] for x in rule.items if not isinstance(x, Word)), rule.prob)
                 for rule in rules]
        try:
            total = least_solution(len(index), terms)
        except NoSolutionError as error:
            names = list(index)
            symbol = next((names[a] for a in error.symbols), names[0])
            raise GrammarError(f"the weights of the trees of {symbol!r} have no finite sum, so that they are no "
                               f"probabilities; lower the weights of its rules", symbol) from None
        mass = sum(weight * total[index[name]] for name, weight in root.items())
        if not mass > 0:
            raise GrammarError("no tree of the grammar has weight; give the root a symbol that leads to words")
        proper = _normalised([rule._replace(prob=weight * math.prod(total[b] for b in factors))
                              for rule, (_, factors, weight) in zip(rules, terms, strict=True)])
        note = f"weights are normalised: all trees together weigh {mass:.6g}"
        scaled = {name: weight * total[index[name]] / mass for name, weight in root.items()}
        written = cls.of({name: float(p) for name, p in scaled.items() if p > 0}, proper, start)
        return replace(written, notes=(note, *written.notes))

    def check(self) -> None:
        """Refuse symbols without rules, and rules that sum to more than 1, or to less in a proper grammar."""
        mass = mass_by_head(self.productions)
        for name, where in self.symbols():
            if name not in mass:
                raise GrammarError(f"{name!r} in {where} heads no rule; every non-terminal needs at least one", name)
        for head, total in mass.items():
            if total > 1 + MASS_TOLERANCE or (self.is_proper and total < 1 - MASS_TOLERANCE):
                raise GrammarError(f"the rules of {head!r} sum to {total:.9f}, expected 1 within {MASS_TOLERANCE:g}; "
                                   f"normalise the probabilities", head)

    def symbols(self) -> Iterator[tuple[str, str]]:
        """Every symbol that is used, and where."""
        for name in self.root:
            yield name, "the root distribution"
        for production in self.productions:
            for item in production.items:
                if not isinstance(item, Word):
                    yield item, f"the rule `{production}`"

    def zero_rules(self) -> list[Production]:
        """Rules of probability 0, which no tree uses and a normal form leaves out."""
        return [production for production in self.productions if production.prob == 0]

    # ---- as a part of a grammar folder -----------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        rules = [[head, [[x.text] if isinstance(x, Word) else x for x in items], p]
                 for head, items, p in self.productions]
        saved = {"root": dict(self.root), "start": self.start, "is_proper": self.is_proper, "rules": rules}
        return saved | ({"notes": list(self.notes)} if self.notes else {})

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> WrittenGrammar:
        """What as_json gave; anything else is a KeyError, TypeError or ValueError."""
        rules = []
        for head, items, p in saved["rules"]:
            read = tuple(Word(*map(_text, x)) if isinstance(x, list) else _text(x) for x in items)
            rules.append(Production(_text(head), read, float(p)))
        root = {_text(name): float(p) for name, p in saved["root"].items()}
        start = None if saved["start"] is None else _text(saved["start"])
        return cls(root, tuple(rules), start, bool(saved["is_proper"]), tuple(map(_text, saved.get("notes", ()))))


def mass_by_head(productions: Iterable[Production]) -> dict[str, float]:
    """What the rules of every symbol sum to."""
    mass: dict[str, float] = defaultdict(float)
    for production in productions:
        mass[production.head] += production.prob
    return dict(mass)


def _normalised(rules: Sequence[Production]) -> list[Production]:
    mass = mass_by_head(rules)
    return [rule._replace(prob=float(rule.prob / mass[rule.head])) for rule in rules if mass[rule.head] > 0]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a name")
    return value


def _added(productions: Iterable[Production]) -> tuple[Production, ...]:
    added: dict[tuple[str, tuple[str | Word, ...]], float] = {}
    for production in productions:
        key = (production.head, production.items)
        added[key] = added.get(key, 0.0) + production.prob
    return tuple(Production(*key, p) for key, p in added.items())


def _index(root: Mapping[str, float], rules: Iterable[Production]) -> dict[str, int]:
    names = [*root, *(name for rule in rules for name in (rule.head, *rule.items) if not isinstance(name, Word))]
    return {name: n for n, name in enumerate(dict.fromkeys(names))}


def _without_empty_rules(written: WrittenGrammar) -> WrittenGrammar:
    """The same probabilities of all sentences but the empty one, which has no place in a chart: the others are divided
    by the rest.  A symbol then stands for its non-empty trees; its trees lack the nodes over nothing.
    """
    written.check()
    index = _index(written.root, written.productions)
    terms = [(index[rule.head], tuple(index[str(x)] for x in rule.items), rule.prob) for rule in written.productions
             if not any(isinstance(x, Word) for x in rule.items)]
    empty = least_solution(len(index), terms)  # probability that a symbol yields nothing: at most 1
    nothing = {name for name, a in index.items() if empty[a] >= 1 - 1e-12}
    nullable = {name for name, a in index.items() if empty[a] > 0}
    rest = 1.0 - sum(p * empty[index[name]] for name, p in written.root.items())
    if not rest > 1e-12:
        raise GrammarError("the grammar yields the empty sentence alone; give a rule a word")
    rules = []
    for rule in written.productions:
        if rule.head in nothing:
            continue
        places = [n for n, x in enumerate(rule.items) if not isinstance(x, Word) and x in nullable]
        if len(places) > MOST_NULLABLE:
            raise GrammarError(f"the rule `{rule}` has {len(places)} symbols that may yield nothing, expected at most "
                               f"{MOST_NULLABLE}; split it into shorter rules", rule.head)
        for kept in itertools.product((True, False), repeat=len(places)):
            dropped = {n for n, keep in zip(places, kept, strict=True) if not keep}
            items = tuple(x for n, x in enumerate(rule.items) if n not in dropped)
            p = rule.prob / (1.0 - empty[index[rule.head]])
            for n in places:
                share = empty[index[str(rule.items[n])]]
                p *= share if n in dropped else 1.0 - share
            if items and not any(x in nothing for x in items if not isinstance(x, Word)):
                rules.append(Production(rule.head, items, float(p)))
    if written.is_proper:  # what rounding left over, where a symbol is almost never anything
        rules = _normalised(rules)
    root = {name: float(p * (1.0 - empty[index[name]]) / rest) for name, p in written.root.items()
            if name not in nothing}
    n_empty = sum(not rule.items for rule in written.productions)
    note = (f"{n_empty:,} rules with nothing on the right are removed, every sentence keeps its probability"
            + (f" but the empty one, which had {1 - rest:.6g}: the rest is divided by {rest:.6g}" if rest < 1 else "")
            + "; trees have no nodes over nothing")
    return replace(written, root=root, productions=_added(rules), notes=(*written.notes, note))


# ---- sums over all trees of a symbol ---------------------------------------------------------------------------------


class NoSolutionError(Exception):
    """The sums of the symbols with these numbers grow without end."""

    def __init__(self, symbols: np.ndarray) -> None:
        super().__init__(f"symbols {symbols}")
        self.symbols: list[int] = symbols.tolist()


def least_solution(n_symbols: int, terms: Sequence[tuple[int, tuple[int, ...], float]]) -> np.ndarray:
    """(n_symbols,) the least z >= 0 with z[a] = the sum over terms (a, factors, weight) of weight * product z[factors].

    Newton's method from 0 rises to the least solution where there is one (Etessami and Yannakakis 2009).  A
    NoSolutionError names symbols whose sum is infinite.
    """
    ends = np.zeros(n_symbols, bool)  # of the others every tree is endless: their sum is 0
    while True:
        more = {a for a, factors, weight in terms if weight > 0 and not ends[a] and all(ends[b] for b in factors)}
        if not more:
            break
        ends[list(more)] = True
    used = [(a, factors, weight) for a, factors, weight in terms if weight > 0 and all(ends[b] for b in factors)]
    z, identity = np.zeros(n_symbols), np.eye(n_symbols)
    for _ in range(ITERATIONS):
        value, slope = _value_and_slope(z, used)
        try:
            step = np.linalg.solve(identity - slope, value - z)
        except np.linalg.LinAlgError:
            raise NoSolutionError(np.flatnonzero(np.diag(slope) >= 1)) from None
        grown = z + step
        if not np.isfinite(grown).all() or (step < -1e-9 * (1 + z)).any():
            raise NoSolutionError(np.flatnonzero(~np.isfinite(grown) | (step < 0)))
        # Near a critical solution steps stay small long before they vanish: what counts is that f leaves it alone.
        if (np.abs(step) <= CLOSE * (1 + z)).all() or \
                ((np.abs(value - z) <= 1e-15 * (1 + z)).all() and z.any()):
            return np.where(ends, grown, 0.0)
        z = np.maximum(grown, z)
    raise NoSolutionError(np.flatnonzero(np.abs(step) > CLOSE * (1 + z)))


def _value_and_slope(z: np.ndarray, terms: Sequence[tuple[int, tuple[int, ...], float]]
                     ) -> tuple[np.ndarray, np.ndarray]:
    value, slope = np.zeros(len(z)), np.zeros((len(z), len(z)))
    for a, factors, weight in terms:
        values = z[list(factors)]
        value[a] += weight * values.prod()
        for n, b in enumerate(factors):
            slope[a, b] += weight * np.delete(values, n).prod()
    return value, slope
