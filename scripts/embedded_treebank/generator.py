"""The embedded treebank: Penn-style trees from a source that no PCFG can describe exactly.

The source is data: embedded.yaml, templates (Penn trees with holes), and lexicon.yaml.  A hole passes features down, so
a choice made in one place holds far from it: a subject and its verb agree across a relative clause, a verb prefers the
nouns it goes with, a fronted `tomorrow` makes the clause a future one, a topic drawn for the sentence colours all its
words.  A PCFG read off the trees loses exactly that, as it does on English.  Finished trees get the irregularities of a
real treebank (annotation_noise.py).  This module knows no English: it expands whatever the source says (the notation is
described at the head of embedded.yaml), the same way for the same seed.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from embedded_treebank.annotation_noise import Irregularities, make_irregular
from pcfg_artifact.system.random_streams import stream
from pcfg_artifact.treebank.tree import Tree

SOURCE = ("embedded.yaml", "lexicon.yaml")
Features = dict[str, Any]
TOKEN = re.compile(r"\d+%|[][(){}]|[^][(){}\s]+")
LEXICAL_DRAW = re.compile(r"(\w+)\((.*)\)")
BRACKETS = frozenset("()[]{}")
ONLY_FORM = "only"
CONDITION = re.compile(r"(\w+)([=~!])(\S+)")


def generate_treebank() -> list[Tree]:
    """All trees of the source; the same ones in every call."""
    generator = Generator(read_source())
    return [generator.sentence(i) for i in range(read_source()["n_trees"])]


@cache
def read_source() -> dict[str, Any]:
    rules, lexicon = (yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8")) for name in SOURCE)
    return {**rules, "lexicon": lexicon}


@dataclass(frozen=True, eq=False)
class LexicalEntry:
    """A lexical entry: its forms as leaves, its attributes, and its weight before topic and preferences."""

    forms: Mapping[str, Tree]
    attributes: Mapping[str, Any]
    weight: float


@dataclass(frozen=True, eq=False)
class Option:
    """One way to expand a rule: its conditions on features, what it draws, and its template."""

    weight: float
    when: tuple[tuple[tuple[str, str], frozenset[str]], ...]
    draw: Mapping[str, Any]
    nest: int | None
    items: tuple[tuple, ...]


class Generator:
    """Expands the rules of a source into trees."""

    def __init__(self, source: Mapping[str, Any]) -> None:
        self._source = source
        self._rules = {name: [_option(option) for option in options] for name, options in source["rules"].items()}
        self._lexicon = {name: _entries(group, source["zipf"]) for name, group in source["lexicon"].items()}
        # The names a rule's conditions ask for, and what there is to choose from, with cumulative weights, for each
        # combination of values met so far: the same few combinations occur again and again.
        self._conditions = {rule: tuple(dict.fromkeys(name for option in options for name, _ in option.when))
                            for rule, options in self._rules.items()}
        self._candidates: dict[tuple, tuple[list, list[float]]] = {}
        self._depth = dict.fromkeys(self._rules, 0)
        self._irregularities = Irregularities(**source["irregular"])

    def sentence(self, index: int) -> Tree:
        """Sentence number `index`, which depends on the source and its seed alone."""
        # A sentence uses a few hundred numbers at most; one call to fetch them is far faster than one call each.
        self._random = stream(self._source["seed"], "embedded", index)
        self._uniform: list[float] = []
        features = {"topic": self._choose(self._source["topics"])}
        [tree] = self._expand("sentence", features)
        tree = _spell(tree, self._source["article"])
        # A stream of its own: the words do not depend on what is irregular.
        return make_irregular(tree, self._irregularities, stream(self._source["seed"], "irregular", index))

    # ---- chance ----------------------------------------------------------------------------------------------------

    def _next(self) -> float:
        if not self._uniform:
            self._uniform = self._random.random(64).tolist()
        return self._uniform.pop()

    def _choose(self, weights: Mapping[str, float]) -> str:
        return _pick(list(weights), list(accumulate(weights.values())), self._next())

    def _value(self, text: Any, features: Features) -> Any:
        """What `$x`, `$x.attribute`, parts joined by `:`, or a constant stand for; a distribution is drawn from."""
        if isinstance(text, str):
            parts = text.split(":")
            text = _look_up(text, features) if len(parts) == 1 else ":".join(_look_up(part, features) for part in parts)
        return self._choose(text) if isinstance(text, Mapping) else text

    def _draw(self, what: Any, features: Features) -> Any:
        match = LEXICAL_DRAW.fullmatch(what) if isinstance(what, str) else None
        return self._draw_entry(match[1], match[2], features) if match else self._value(what, features)

    def _draw_entry(self, name: str, conditions: str, features: Features) -> LexicalEntry:
        wanted = tuple((attribute, sign, self._value(value, features))
                       for attribute, sign, value in CONDITION.findall(conditions))
        key = (name, features["topic"], wanted)
        if key not in self._candidates:
            weighted = [(entry, self._weight(entry, features["topic"], wanted)) for entry in self._lexicon[name]]
            weighted = [(entry, weight) for entry, weight in weighted if weight > 0]
            if not weighted:
                raise ValueError(f"the source has no {name} for {wanted}")
            self._candidates[key] = [e for e, _ in weighted], list(accumulate(w for _, w in weighted))
        return _pick(*self._candidates[key], self._next())

    def _weight(self, entry: LexicalEntry, topic: str, wanted: tuple) -> float:
        own = entry.attributes.get("topic")
        weight = entry.weight * (1.0 if own is None else self._source["topical" if own == topic else "off_topic"])
        for attribute, sign, value in wanted:
            has: Any = entry if attribute == "self" else entry.attributes.get(attribute)
            if sign == "!":
                weight *= has != value
            elif sign == "=":
                weight *= value in has if isinstance(has, list) else value == has
            else:
                weight *= has.get(value, self._source["odd"]) if has is not None else 0.0
        return weight

    # ---- expansion -------------------------------------------------------------------------------------------------

    def _expand(self, rule: str, features: Features) -> list[Tree]:
        depth = self._depth[rule]
        values = tuple(_attribute(features, *name) for name in self._conditions[rule])
        key = (rule, depth, values)
        if key not in self._candidates:
            known = dict(zip(self._conditions[rule], values, strict=True))
            options = [option for option in self._rules[rule]
                       if (option.nest is None or depth < option.nest)
                       and all(known[name] in allowed for name, allowed in option.when)]
            if not options:
                raise ValueError(f"the source has no way to expand {rule} with {known}")
            self._candidates[key] = options, list(accumulate(option.weight for option in options))
        option = _pick(*self._candidates[key], self._next())
        features = dict(features)
        for name, what in option.draw.items():
            features[name] = self._draw(what, features)
        self._depth[rule] = depth + 1
        trees = self._build(option.items, features)
        self._depth[rule] = depth
        return trees

    def _build(self, items: tuple[tuple, ...], features: Features) -> list[Tree]:
        trees: list[Tree] = []
        for kind, *content in items:
            if kind == "node":
                label, children = content
                trees.append(Tree(label, tuple(self._build(children, features))))
            elif kind == "leaf":
                label, word = content
                trees.append(Tree(label, (), _look_up(word, features)))
            elif kind == "call":
                rule, arguments = content
                given = {name: self._value(value, features) for name, value in arguments}
                trees += self._expand(rule, features | given)
            elif kind == "entry":
                name, conditions, form = content
                entry = features[name] if name in features else self._draw_entry(name, conditions, features)
                trees.append(entry.forms[self._value(form, features)])
            elif self._next() < content[0]:
                trees += self._build(content[1], features)
        return trees


def _pick(values: list, cumulative: list[float], uniform: float) -> Any:
    return values[min(bisect(cumulative, uniform * cumulative[-1]), len(values) - 1)]


def _look_up(text: str, features: Features) -> Any:
    """The feature or attribute that `$x` or `$x.attribute` names; other texts stand for themselves."""
    return _attribute(features, *_path(text[1:])) if len(text) > 1 and text[0] == "$" else text


def _attribute(features: Features, name: str, attribute: str) -> Any:
    value = features.get(name)
    return value.attributes.get(attribute) if attribute and value is not None else value


def _path(text: str) -> tuple[str, str]:
    name, _, attribute = text.partition(".")
    return name, attribute


# ---- reading the source ----------------------------------------------------------------------------------------------


def _option(data: Mapping[str, Any]) -> Option:
    when = tuple((_path(name), frozenset(allowed if isinstance(allowed, list) else [allowed]))
                 for name, allowed in data.get("when", {}).items())
    items, rest = _items(TOKEN.findall(data["tree"]))
    if rest:
        raise ValueError(f"the template {data['tree']!r} closes a bracket it never opened")
    return Option(data["weight"], when, data.get("draw", {}), data.get("nest"), items)


def _items(tokens: list[str]) -> tuple[tuple[tuple, ...], list[str]]:
    """Items of a template up to the bracket that closes it, and the tokens from that bracket on."""
    items: list[tuple] = []
    chance: float | None = None
    item: tuple[Any, ...]
    while tokens and tokens[0] != ")":
        token, *tokens = tokens
        if token.endswith("%") and token != "%":
            chance = int(token[:-1]) / 100
            continue
        if token == "(" and tokens[1] not in BRACKETS and tokens[2] == ")":
            item, tokens = ("leaf", tokens[0], tokens[1]), tokens[3:]
        elif token == "(":
            label, *tokens = tokens
            children, tokens = _items(tokens)
            item, tokens = ("node", label, children), tokens[1:]
        elif token == "{":
            end = tokens.index("}")
            rule, arguments = tokens[0], tokens[1:end]
            item, tokens = ("call", rule, tuple(tuple(a.split("=", 1)) for a in arguments)), tokens[end + 1 :]
        else:
            end = tokens.index("]")
            name, *rest = tokens[:end]
            conditions = [part for part in rest if CONDITION.fullmatch(part)]
            form = next((part for part in rest if part not in conditions), ONLY_FORM)
            item, tokens = ("entry", name, " ".join(conditions), form), tokens[end + 1 :]
        items.append(item if chance is None else ("chance", chance, (item,)))
        chance = None
    return tuple(items), tokens


def _entries(group: Mapping[str, Any], zipf: float) -> list[LexicalEntry]:
    """The words of a lexical class; within a group the order of the words is the order of their frequency."""
    columns = [[key.split("=") for key in column.split()] for column in group["forms"]]
    entries = []
    for words in group["groups"]:
        attributes = {name: value for name, value in words.items() if name not in ("words", "share")}
        for rank, word in enumerate(words["words"].split(), start=1):
            spelled = word.split("/")
            forms = {key: Tree(tag, (), form) for column, form in zip(columns, spelled, strict=True)
                     for key, tag in column}
            entries.append(LexicalEntry(forms, attributes, words.get("share", 1.0) / rank**zipf))
    return entries


def _spell(tree: Tree, article: Mapping[str, Any]) -> Tree:
    """A capital at the beginning of the sentence, and `a` or `an` as the next word asks."""
    words = tree.words()
    for t, (word, following) in enumerate(zip(words, [*words[1:], ""], strict=True)):
        if word == article["before_consonant"] and following.lower().startswith(tuple(article["vowels"])):
            words[t] = word if following in article["except"] else article["before_vowel"]
    first = next(t for t, word in enumerate(words) if word[0].isalnum())
    words[first] = words[first][0].upper() + words[first][1:]
    remaining = iter(words)
    return _with_words(tree, remaining)


def _with_words(tree: Tree, words: Any) -> Tree:
    if tree.is_preterminal:
        return Tree(tree.label, (), next(words))
    return Tree(tree.label, tuple(_with_words(child, words) for child in tree.children))
