"""A PCFG as plain text, one rule a line, to read, write by hand, or exchange.

    # a comment
    ROOT -> S 1.0
    S -> NP VP 1.0
    NP -> 'she' 0.5

Words stand in single quotes; a quote or backslash inside is escaped with a backslash.  The probability is last, with
as many digits as float64 needs, so that text and grammar say the same.  Training counts are not part of it.
"""

from __future__ import annotations

import re

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.pcfg import PCFG

ROOT, ARROW = "ROOT", "->"
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\S+")


def to_text(grammar: PCFG) -> str:
    names = grammar.nonterminals
    lines = [f"{ROOT} {ARROW} {name} {p!r}" for name, p in zip(names, grammar.root.tolist(), strict=True) if p > 0]
    for (a, b, c), p in zip(grammar.binary.tolist(), grammar.binary_prob.tolist(), strict=True):
        lines.append(f"{names[a]} {ARROW} {names[b]} {names[c]} {p!r}")
    for (a, w), p in zip(grammar.lexical.tolist(), grammar.lexical_prob.tolist(), strict=True):
        lines.append(f"{names[a]} {ARROW} {_quote(grammar.words[w])} {p!r}")
    return "\n".join(lines) + "\n"


def from_text(text: str, name: str = "rules") -> PCFG:
    """The grammar that the text describes; a line that is no rule is a GrammarError with its number."""
    root: dict[str, float] = {}
    binary: list[tuple[str, str, str, float]] = []
    lexical: list[tuple[str, str, float]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        tokens = _TOKEN.findall(line)
        try:
            parent, arrow, *children, last = tokens
            p = float(last)
            if arrow != ARROW:
                raise ValueError
            if parent == ROOT and len(children) == 1 and not _is_quoted(children[0]):
                root[children[0]] = p
            elif len(children) == 1 and _is_quoted(children[0]):
                lexical.append((parent, _unquote(children[0]), p))
            elif len(children) == 2 and not any(map(_is_quoted, children)):
                binary.append((parent, *children, p))
            else:
                raise ValueError
        except ValueError:
            raise GrammarError(f"{name}, line {number}: {line.strip()!r} is not a rule; expected `A -> B C 0.5`, "
                               f"`A -> 'word' 0.5` or `{ROOT} -> A 0.5`") from None
    return PCFG.from_rules(root, binary, lexical)


def _quote(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _unquote(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1])


def _is_quoted(token: str) -> bool:
    return len(token) >= 3 and token[0] == token[-1] == "'"
