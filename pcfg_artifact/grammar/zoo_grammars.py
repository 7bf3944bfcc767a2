"""Grammars that others have asked the paper's questions of, built by code from a few parameters.

`zoo:NAME`, or with parameters `zoo:rhm,depth=4,seed=1`, names one wherever a grammar is taken.  Rules are facts: each
kind names the publication that they are taken from or follow.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
from collections.abc import Callable
from functools import partial
from importlib import resources
from typing import Any, NamedTuple

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.normal_form import normal_form
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.rulefile import to_text
from pcfg_artifact.grammar.written import Production, Word, WrittenGrammar
from pcfg_artifact.system.random_streams import stream
from pcfg_artifact.treebank.reading import EMBEDDED, read_treebank
from pcfg_artifact.treebank.splits import split

PREFIX = "zoo:"
# The rules of the cfg3 grammars, by letter.  A line is a level of symbols, from the root down; below the last level
# stand the words 1, 2, 3, ...  Symbols are parted by `|`, the rules of a symbol by blanks, and a rule lists its
# children as indices into the next level, from 0, with points between them where one has two digits.
CFG3_RULES: dict[str, list[str]] = json.loads((resources.files(__package__) / "cfg3_rules.json").read_text())
CFG3_WORDS = {"e1": 9, "e2": 4}  # all others have 3
CFG3_RESERVED = 3  # numbers between the words and the symbols, which the authors keep for marks


class GrammarKind(NamedTuple):
    """A kind of grammar: how it is built (its parameters have defaults), what it is, and where it comes from."""

    build: Callable[..., WrittenGrammar | PCFG]
    what: str
    source: str

    def parameters(self) -> dict[str, Any]:
        return {name: p.default for name, p in inspect.signature(self.build).parameters.items() if name != "name"}


def zoo(name: str, **parameters: Any) -> PCFG:
    """The grammar of that name, e.g. zoo("cfg3b") or zoo("rhm", depth=4); its parameters replace the defaults."""
    if name not in KINDS:
        raise GrammarError(f"the zoo has no grammar {name!r}; expected one of {', '.join(KINDS)}")
    known = KINDS[name].parameters()
    for key, value in parameters.items():
        if key not in known:
            raise GrammarError(f"zoo:{name} has no parameter {key!r}; expected "
                               f"{', '.join(known) if known else 'none, it is what it is'}")
        if type(value) is not type(known[key]):
            raise GrammarError(f"{key} of zoo:{name} is {value!r}, expected {type(known[key]).__name__} as the default "
                               f"{known[key]!r}")
    built = KINDS[name].build(**parameters)
    return built if isinstance(built, PCFG) else normal_form(built).grammar


def read_name(text: str) -> tuple[str, dict[str, Any]]:
    """Name and parameters of `zoo:NAME,key=value,...`."""
    name, *settings = text.removeprefix(PREFIX).split(",")
    defaults = KINDS[name].parameters() if name in KINDS else {}
    parameters: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise GrammarError(f"{setting!r} in {text!r} is no parameter; expected key=value")
        parameters[key] = _value(value, defaults.get(key))
    return name, parameters


def _value(text: str, default: Any) -> Any:
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return type(default)(text) if isinstance(default, int | float) else text
    except ValueError:
        return text  # `zoo` says what was expected


def frozen_hash(grammar: PCFG) -> str:
    """SHA-256 of the rules as they are written, in order."""
    if grammar.written is None:
        return hashlib.sha256(to_text(grammar).encode()).hexdigest()
    rules = [f"{rule} {rule.prob!r}" for rule in grammar.written.productions]
    return hashlib.sha256("\n".join([repr(dict(grammar.written.root)), *rules]).encode()).hexdigest()


# ---- builders -------------------------------------------------------------------------------------------------------


def _least(what: str, **values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise GrammarError(f"{name} of zoo:{what} is {value}, expected 1 or more")


def cfg3(name: str) -> WrittenGrammar:
    """One of the grammars of Allen-Zhu and Li, by its letter; all rules of a symbol are equally probable.

    Symbols are numbered from below, words first and then from the number of words + 4, as the authors do.
    """
    levels = [[[_children(rule) for rule in symbol.split()] for symbol in line.split("|")]
              for line in CFG3_RULES[name]]
    first, number = CFG3_WORDS.get(name, 3) + CFG3_RESERVED + 1, {}
    for depth in reversed(range(len(levels))):
        number[depth] = first
        first += len(levels[depth])
    productions = []
    for depth, symbols in enumerate(levels):
        for place, rules in enumerate(symbols):
            for children in rules:
                items = tuple(str(number[depth + 1] + c) if depth + 1 in number else Word(str(c + 1)) for c in children)
                productions.append(Production(str(number[depth] + place), items, 1 / len(rules)))
    return WrittenGrammar.of({str(number[0]): 1.0}, productions)


def _children(rule: str) -> list[int]:
    return [int(place) for place in (rule.split(".") if "." in rule else rule)]


def random_hierarchy(depth: int = 3, shortest: int = 2, longest: int = 2, symbols: int = 8, rules: int = 4,
                     seed: int = 0) -> WrittenGrammar:
    """Each of `symbols` symbols of a level has `rules` synonymic rules to the level below, all of them distinct.

    The root is any symbol of the first level; the last level are the words.  Rules are `shortest` to `longest` items
    long: if both are the same the tree is fixed, and the grammar is unambiguous.
    """
    _least("rhm", depth=depth, symbols=symbols, rules=rules)
    n_possible = sum(symbols ** n for n in range(shortest, longest + 1))
    if not 2 <= shortest <= longest or n_possible > 10**6:
        raise GrammarError(f"rules of zoo:rhm are {shortest} to {longest} items of {symbols} symbols long, expected 2 "
                           f"or more, ascending, and at most a million different ones (here {n_possible:,})")
    if symbols * rules > n_possible:
        raise GrammarError(f"zoo:rhm with {symbols} symbols has {n_possible:,} different right sides, and {symbols} x "
                           f"{rules} rules need one each; lower rules or raise symbols or longest")
    possible = [list(itertools.product(range(symbols), repeat=n)) for n in range(shortest, longest + 1)]
    productions = []
    for level in range(1, depth + 1):
        rng = stream(seed, "zoo rhm", level)
        # The length first, so that short rules are as frequent as long ones, as long as there are enough of them.
        unused = [[sides[i] for i in rng.permutation(len(sides))] for sides in possible]
        for a, _ in itertools.product(range(symbols), range(rules)):
            lengths = [n for n, sides in enumerate(unused) if sides]
            side = unused[lengths[int(rng.integers(len(lengths)))]].pop()
            items = tuple(Word(str(b + 1)) if level == depth else f"L{level + 1}.{b + 1}" for b in side)
            productions.append(Production(f"L{level}.{a + 1}", items, 1 / rules))
    return WrittenGrammar.of({f"L1.{a + 1}": 1 / symbols for a in range(symbols)}, productions)


def dyck(k: int = 2, m: int = 4, more: float = 0.5, leaf: float = 0.4) -> WrittenGrammar:
    """Well-nested strings of k kinds of brackets, at most m deep.

    A block is followed by another one with probability `more`, and is empty inside with probability `leaf`; blocks of
    depth m always are.
    """
    _least("dyck", k=k, m=m)
    _shares("dyck", more=more, leaf=leaf)
    productions = []
    for d in range(1, m + 1):
        productions += [Production(f"S{d}", (f"B{d}", f"S{d}"), more), Production(f"S{d}", (f"B{d}",), 1 - more)]
        for kind in range(1, k + 1):
            pair = Word(f"<{kind}"), Word(f"{kind}>")
            productions.append(Production(f"B{d}", pair, (leaf if d < m else 1.0) / k))
            if d < m:
                productions.append(Production(f"B{d}", (pair[0], f"S{d + 1}", pair[1]), (1 - leaf) / k))
    return WrittenGrammar.of({"S1": 1.0}, productions)


def _shares(what: str, **values: float) -> None:
    for name, value in values.items():
        if not 0 < value < 1:
            raise GrammarError(f"{name} of zoo:{what} is {value}, expected more than 0 and less than 1")


def arithmetic(plus: float = 0.3, times: float = 0.3, nested: float = 0.25, digits: int = 2) -> WrittenGrammar:
    """Sums of products of digits and sums in brackets; the levels of precedence make it unambiguous."""
    _least("arithmetic", digits=digits)
    _shares("arithmetic", plus=plus, times=times, nested=nested)
    productions = [Production("Sum", ("Sum", Word("+"), "Product"), plus), Production("Sum", ("Product",), 1 - plus),
                   Production("Product", ("Product", Word("*"), "Factor"), times),
                   Production("Product", ("Factor",), 1 - times),
                   Production("Factor", (Word("("), "Sum", Word(")")), nested),
                   *(Production("Factor", (Word(str(n)),), (1 - nested) / digits) for n in range(digits))]
    return WrittenGrammar.of({"Sum": 1.0}, productions)


def ambiguous_arithmetic(plus: float = 0.2, times: float = 0.15, nested: float = 0.15, digits: int = 2
                         ) -> WrittenGrammar:
    """The same strings without precedence: a + b * c has a tree for each order of its operators."""
    _least("arithmetic-ambiguous", digits=digits)
    _shares("arithmetic-ambiguous", plus=plus, times=times, nested=nested, all_three=plus + times + nested)
    productions = [Production("E", ("E", Word("+"), "E"), plus), Production("E", ("E", Word("*"), "E"), times),
                   Production("E", (Word("("), "E", Word(")")), nested),
                   *(Production("E", (Word(str(n)),), (1 - plus - times - nested) / digits) for n in range(digits))]
    return WrittenGrammar.of({"E": 1.0}, productions)


def palindromes(letters: int = 2, more: float = 0.8, marked: bool = False) -> WrittenGrammar:
    """Even palindromes, or with a `marked` middle: a word `#` where the second half begins."""
    _least("palindromes", letters=letters)
    _shares("palindromes", more=more)
    productions = []
    for n in range(1, letters + 1):
        letter = Word(f"a{n}")
        productions += [Production("P", (letter, "P", letter), more / letters),
                        Production("P", (letter, *((Word("#"),) if marked else ()), letter), (1 - more) / letters)]
    return WrittenGrammar.of({"P": 1.0}, productions)


def subgrammars(levels: int = 3, only: int = 0, more: float = 0.4) -> WrittenGrammar:
    """Sequences of level n hold sequences of level n - 1 between marks: every level is a grammar by itself.

    only: that level alone, from 1, the inner one, for comparison with the whole; 0 is the whole.
    """
    _least("subgrammar", levels=levels)
    _shares("subgrammar", more=more)
    if not 0 <= only <= levels:
        raise GrammarError(f"only of zoo:subgrammar is {only}, expected 0 (the whole) to {levels}, the level")
    productions = [Production("S1", (Word("x"), "S1"), more / 2), Production("S1", (Word("y"), "S1"), more / 2),
                   Production("S1", (Word("x"),), (1 - more) / 2), Production("S1", (Word("y"),), (1 - more) / 2)]
    for n in range(2, (only or levels) + 1):
        inside = Word(f"<{n}"), f"S{n - 1}", Word(f"{n}>")
        productions += [Production(f"S{n}", (*inside, f"S{n}"), more), Production(f"S{n}", inside, 1 - more)]
    return WrittenGrammar.of({f"S{only or levels}": 1.0}, productions)


def english(variant: str = "vm", cutoff: int = 5) -> PCFG:
    """The grammar of the profile smoke: learned from the generated treebank that comes with the package."""
    return learn_pcfg(split(read_treebank(EMBEDDED)).train, variant, cutoff)


_PHYSICS = "Allen-Zhu and Li, Physics of Language Models: Part 1 (arXiv 2305.13673)"
_CANON = "Allen-Zhu, Physics of Language Models: Part 4.1"
_HIERARCHY = "Cagnetta, Petrini, Tomasini, Favero and Wyart, Random Hierarchy Model (Physical Review X, 2024)"
KINDS: dict[str, GrammarKind] = {
    **{f"cfg3{name}": GrammarKind(partial(cfg3, name), "levels of symbols with uniform rules of 2 or 3 items",
                           _CANON if name in "jk" else _PHYSICS) for name in CFG3_RULES},
    "rhm": GrammarKind(random_hierarchy, "random hierarchy with synonymic rules and one fixed tree", _HIERARCHY),
    "rhm-varying": GrammarKind(partial(random_hierarchy, longest=3), "random hierarchy whose rules have 2 or 3 items",
                        f"{_HIERARCHY}, with varying trees"),
    "dyck": GrammarKind(dyck, "brackets of k kinds, at most m deep",
                 "Hewitt, Hahn, Ganguli, Liang and Manning (EMNLP 2020); Yao and others (ACL 2021)"),
    "arithmetic": GrammarKind(arithmetic, "sums, products and brackets, unambiguous", "textbook"),
    "arithmetic-ambiguous": GrammarKind(ambiguous_arithmetic, "sums and products without precedence", "textbook"),
    "palindromes": GrammarKind(palindromes, "even palindromes", "textbook"),
    "subgrammar": GrammarKind(subgrammars, "levels that are grammars by themselves",
                       "after Schulz, Mitropolsky and Poggio, Unraveling Syntax (arXiv 2510.02524); rules are ours"),
    "english": GrammarKind(english, "English of the generated treebank", "the profile smoke of this project"),
}
