"""A PCFG as people write it: rules with any number of symbols and words on the right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pcfg_artifact.errors import GrammarError

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
    """

    root: Mapping[str, float]
    productions: tuple[Production, ...]
    start: str | None = None
    is_proper: bool = True

    @classmethod
    def of(cls, root: Mapping[str, float], productions: Iterable[Production], start: str | None = None, *,
           is_proper: bool = True) -> WrittenGrammar:
        """From rules in any order, the same one perhaps several times: their probabilities are added."""
        added: dict[tuple[str, tuple[str | Word, ...]], float] = {}
        for production in productions:
            if not production.items:
                raise GrammarError(f"the rule `{production.head} ->` has nothing on the right; rules must yield at "
                                   f"least one word: write the rules that use {production.head!r} without it as well")
            key = (production.head, production.items)
            added[key] = added.get(key, 0.0) + production.prob
        return cls(dict(root), tuple(Production(*key, p) for key, p in added.items()), start, is_proper)

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
        return {"root": dict(self.root), "start": self.start, "is_proper": self.is_proper, "rules": rules}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> WrittenGrammar:
        """What as_json gave; anything else is a KeyError, TypeError or ValueError."""
        rules = []
        for head, items, p in saved["rules"]:
            read = tuple(Word(*map(_text, x)) if isinstance(x, list) else _text(x) for x in items)
            rules.append(Production(_text(head), read, float(p)))
        root = {_text(name): float(p) for name, p in saved["root"].items()}
        start = None if saved["start"] is None else _text(saved["start"])
        return cls(root, tuple(rules), start, bool(saved["is_proper"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a name")
    return value
