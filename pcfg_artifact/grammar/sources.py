"""A grammar from wherever the user has it: a rule file, a grammar folder, a file of NLTK, or the zoo.

Opens what the user names, as treebank/reading.py does.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from pcfg_artifact.errors import GrammarError, UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.rulefile import from_text
from pcfg_artifact.grammar.zoo_grammars import PREFIX, frozen_hash, read_name, zoo

EXPECTED = f"a rule file, a grammar folder, a file of NLTK's rules, or {PREFIX}NAME (see `run_all.sh zoo`)"
_NLTK_RULE = re.compile(r"^[^#\n].*->.*\[[^\]\s]*\]\s*$", re.MULTILINE)  # S -> NP VP [1.0]


def read_grammar(source: str | Path, *, weights: bool = False) -> PCFG:
    """The grammar that a source names; `weights`: the numbers of its rules are weights, not probabilities."""
    name = str(source)
    if name.startswith(PREFIX):
        kind, parameters = read_name(name)
        return zoo(kind, **parameters)
    path = Path(source)
    try:
        if path.is_file():
            text = path.read_text(encoding="utf-8-sig")
            return _from_nltk_text(text, name, weights) if _NLTK_RULE.search(text) \
                else from_text(text, name, weights=weights)
        if not path.exists():
            raise UsageError(f"no grammar at {_shortened(name)}; expected {EXPECTED}")
        if not path.is_dir():
            raise UsageError(f"{_shortened(name)} is neither a file nor a folder; expected {EXPECTED}")
        return PCFG.load(path)
    except UnicodeDecodeError as error:
        raise UsageError(f"{_shortened(name)} is not a text file of rules ({error}); expected {EXPECTED}") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read the grammar {_shortened(name)}: {reason}; expected {EXPECTED}, which may be "
                         f"read") from error


def grammar_hash(source: str | Path) -> str:
    """A hash of the grammar that a source names: of its names, rules and probabilities."""
    grammar = read_grammar(source)
    digest = hashlib.sha256("\0".join([*grammar.nonterminals, "", *grammar.words]).encode())
    for array in (grammar.root, grammar.binary, grammar.binary_prob, grammar.lexical, grammar.lexical_prob):
        digest.update(array.tobytes())
    digest.update(frozen_hash(grammar).encode())
    return digest.hexdigest()


def _from_nltk_text(text: str, name: str, weights: bool) -> PCFG:
    from nltk.grammar import PCFG as NltkPCFG  # here, because it takes a second that other sources need not pay

    if weights:
        raise UsageError(f"{name} holds rules of NLTK, whose numbers are probabilities; leave out --weights, or write "
                         f"a rule file")
    try:
        return PCFG.from_nltk(NltkPCFG.fromstring(text))
    except ValueError as error:
        raise GrammarError(f"{name}: NLTK refuses the rules ({error}); expected lines like `S -> NP VP [1.0]` whose "
                           f"numbers sum to 1 for every symbol") from error


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"
