"""A PCFG as plain text, one rule a line, to read, write by hand, or exchange.

    # a comment
    ROOT -> S 1.0
    S -> NP VP 1.0
    NP -> 'she' 0.5
    "#" -> '#' 1.0

Words stand in single quotes.  Symbols stand as they are, or in double quotes where they would be misread: with blanks
in them, or beginning with a quote or #.  Inside quotes a backslash stands before a quote or a backslash, and \\n, \\t,
\\r, \\xHH, \\uHHHH and \\UHHHHHHHH are characters that cannot be seen.  The probability is last, with as many digits as
float64 needs, so that text and grammar say the same.  Training counts are not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.pcfg import PCFG

ROOT, ARROW = "ROOT", "->"
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"(?!\S)|\S+""")
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r"}
_EXPECTED = f"`A -> B C 0.5`, `A -> 'word' 0.5` or `{ROOT} -> A 0.5`, with a probability from 0 to 1"


def to_text(grammar: PCFG) -> str:
    names = [_symbol(name) for name in grammar.nonterminals]
    lines = [f"{ROOT} {ARROW} {name} {p!r}" for name, p in zip(names, grammar.root.tolist(), strict=True) if p > 0]
    for (a, b, c), p in zip(grammar.binary.tolist(), grammar.binary_prob.tolist(), strict=True):
        lines.append(f"{names[a]} {ARROW} {names[b]} {names[c]} {p!r}")
    for (a, w), p in zip(grammar.lexical.tolist(), grammar.lexical_prob.tolist(), strict=True):
        lines.append(f"{names[a]} {ARROW} {_quote(grammar.words[w], _WORD)} {p!r}")
    return "\n".join(lines) + "\n"


def from_text(text: str, name: str = "rules") -> PCFG:
    """The grammar that the text describes; what it does not say once and clearly is a GrammarError with its line."""
    root: dict[str, float] = {}
    binary: list[tuple[str, str, str, float]] = []
    lexical: list[tuple[str, str, float]] = []
    lines: dict[Hashable, int] = {}  # of every rule, and of the first binary and the first lexical rule of a symbol
    for number, line in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            rule, p = _parse(line)
        except ValueError:
            raise GrammarError(f"{name}, line {number}: {_shortened(line)!r} is not a rule; expected {_EXPECTED}"
                               ) from None
        kind, parent, *children = rule
        if lines.setdefault(rule, number) != number:
            raise GrammarError(f"{name}, line {number}: {_shortened(line)!r} is the rule of line {lines[rule]} again; "
                               f"add their probabilities into one rule")
        if kind == ROOT:
            root[parent] = p
            continue
        lines.setdefault((kind, parent), number)
        if kind == "binary":
            binary.append((parent, *children, p))  # type: ignore[arg-type] # two of them
        else:
            lexical.append((parent, children[0], p))
        other = lines.get(("lexical" if kind == "binary" else "binary", parent))
        if other is not None:
            raise GrammarError(f"{name}, line {number}: {_shortened(line)!r} is {_KIND[kind]}, but {parent!r} heads "
                               f"{_KIND['lexical' if kind == 'binary' else 'binary']} in line {other}; a symbol is "
                               f"over words or over two symbols: give the words a symbol of their own")
    try:
        return PCFG.from_rules(root, binary, lexical)
    except GrammarError as error:
        raise GrammarError(f"{name}: {error}") from error


_KIND = {"binary": "a binary rule", "lexical": "a lexical rule"}
_WORD, _SYMBOL = "'", '"'


def _parse(line: str) -> tuple[tuple[str, ...], float]:
    """(kind, symbols and words of the rule) and its probability; a ValueError where the line is no rule."""
    parent, arrow, *children, last = _TOKEN.findall(line)
    p = float(last)
    if arrow != ARROW or not 0.0 <= p <= 1.0:
        raise ValueError
    words = [child for child in children if _is_quoted(child, _WORD)]
    if len(children) == 1 and words:
        return ("lexical", _name(parent), _unquote(words[0])), p
    if len(children) == 1 and parent == ROOT:
        return (ROOT, _name(children[0])), p
    if len(children) == 2 and not words:
        return ("binary", _name(parent), _name(children[0]), _name(children[1])), p
    raise ValueError


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
