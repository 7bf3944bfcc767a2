"""A PCFG as plain text, one rule a line, to read, write by hand, or exchange.

    # a comment
    ROOT -> S 1.0
    S -> NP VP 1.0
    NP -> 'she' 0.5
    VP -> V 0.2
    VP -> V 'up' NP PP 0.1
    "#" -> '#' 1.0
    PP -> 0.1

The last one has nothing on the right: such rules are removed on reading (written.py says how).  Rules have any number
of symbols and words on the right; those that are not in normal form are brought to it
(normal_form.py), and the grammar remembers them.

Words stand in single quotes.  Symbols stand as they are, or in double quotes where they would be misread: with blanks
in them, or beginning with a quote or #.  Inside quotes a backslash stands before a quote or a backslash, and \\n, \\t,
\\r, \\xHH, \\uHHHH and \\UHHHHHHHH are characters that cannot be seen.  The probability is last, with as many digits as
float64 needs, so that text and grammar say the same.  Training counts are not part of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.normal_form import normal_form
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.written import ROOT, Production, Word, WrittenGrammar

ARROW = "->"
SHOWN_LINES = 3
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'(?!\S)|"(?:[^"\\]|\\.)*"(?!\S)|\S+""")
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r"}
_EXPECTED = f"`A -> B C 0.5`, `A -> 'word' 0.5` or `{ROOT} -> A 0.5`, with a probability from 0 to 1 at the end"


def to_text(grammar: PCFG) -> str:
    names = [_symbol(name) for name in grammar.nonterminals]
    lines = [f"{ROOT} {ARROW} {name} {p!r}" for name, p in zip(names, grammar.root.tolist(), strict=True) if p > 0]
    for (a, b, c), p in zip(grammar.binary.tolist(), grammar.binary_prob.tolist(), strict=True):
        lines.append(f"{names[a]} {ARROW} {names[b]} {names[c]} {p!r}")
    for (a, w), p in zip(grammar.lexical.tolist(), grammar.lexical_prob.tolist(), strict=True):
        lines.append(f"{names[a]} {ARROW} {_quote(grammar.words[w], _WORD)} {p!r}")
    return "\n".join(lines) + "\n"


def from_text(text: str, name: str = "rules", *, weights: bool = False) -> PCFG:
    """The grammar that the text describes; what it does not say once and clearly is a GrammarError with its line.

    weights: the numbers are weights of any size, and a tree's probability is its product over that of all trees.
    """
    root: dict[str, float] = {}
    productions: list[Production] = []
    lines: dict[tuple[Any, ...], int] = {}  # of every rule
    for number, line in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            head, *items, p = _parse(line, math.inf if weights else 1.0)
        except ValueError:
            raise GrammarError(f"{name}, line {number}: {_shortened(line)!r} is not a rule; expected {_EXPECTED}"
                               ) from None
        rule = (head, *items)
        if lines.setdefault(rule, number) != number:
            raise GrammarError(f"{name}, line {number}: {_shortened(line)!r} is the rule of line {lines[rule]} again; "
                               f"add their probabilities into one rule")
        if head is None:
            root[items[0]] = p
        else:
            productions.append(Production(head, tuple(items), p))
    try:
        return _grammar(root, productions, weights)
    except GrammarError as error:
        raise GrammarError(f"{name}{_lines_of(error.symbol, lines)}: {error}") from error


def _lines_of(symbol: str | None, lines: Mapping[tuple[Any, ...], int]) -> str:
    """The lines of the rules that a symbol heads, or where it heads none of those that use it, for a message."""
    found = [number for rule, number in lines.items()
             if symbol is not None and (ROOT if rule[0] is None else rule[0]) == symbol]
    found = found or [number for rule, number in lines.items() if symbol in rule[1:]]
    more = ", ..." if len(found) > SHOWN_LINES else ""
    return f", line{'s' * (len(found) > 1)} {', '.join(map(str, found[:SHOWN_LINES]))}{more}" if found else ""


def _grammar(root: dict[str, float], productions: list[Production], weights: bool) -> PCFG:
    """The grammar itself where its rules are in normal form, else the normal form of it."""
    if weights:
        return normal_form(WrittenGrammar.weighted(root, productions)).grammar
    binary = [(head, *items, p) for head, items, p in productions
              if len(items) == 2 and not any(isinstance(item, Word) for item in items)]
    lexical = [(head, items[0].text, p) for head, items, p in productions
               if len(items) == 1 and isinstance(items[0], Word)]
    if len(binary) + len(lexical) == len(productions) and {r[0] for r in binary}.isdisjoint(r[0] for r in lexical):
        return PCFG.from_rules(root, binary, lexical)  # type: ignore[arg-type] # two symbols each
    return normal_form(WrittenGrammar.of(root, productions)).grammar


_WORD, _SYMBOL = "'", '"'


def _parse(line: str, most: float) -> tuple[Any, ...]:
    """Head (None: the root distribution), items and probability of a rule; a ValueError where the line is none."""
    parent, arrow, *children, last = _TOKEN.findall(line)
    p = float(last)
    if arrow != ARROW or not 0.0 <= p <= most or math.isinf(p) or _is_quoted(parent, _WORD):
        raise ValueError
    items = [Word(_unquote(child)) if _is_quoted(child, _WORD) else _name(child) for child in children]
    is_root = parent == ROOT and len(items) == 1 and not isinstance(items[0], Word)
    return (None if is_root else _name(parent), *items, p)


def _symbol(name: str) -> str:
    """The name as it is where it is read back as it is, else in double quotes."""
    is_plain = name and name.isprintable() and not set(name) & set(" \\") and name[0] not in "'\"#\ufeff"
    return name if is_plain else _quote(name, _SYMBOL)


def _name(token: str) -> str:
    return _unquote(token) if _is_quoted(token, _SYMBOL) else token


def _quote(text: str, quote: str) -> str:
    return quote + "".join(_escaped(character, quote) for character in text) + quote


def _escaped(character: str, quote: str) -> str:
    if character in ("\\", quote):
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _unquote(token: str) -> str:
    return _ESCAPE.sub(_character, token[1:-1])


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _CONTROL.get(escape, escape)


def _is_quoted(token: str, quote: str) -> bool:
    return len(token) >= 3 and token[0] == token[-1] == quote


def _shortened(line: str) -> str:
    line = line.strip()
    return line if len(line) <= 80 else f"{line[:77]}..."
