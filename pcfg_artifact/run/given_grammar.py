"""A profile for a grammar of the user's own: what its sentences cannot have is replaced by the nearest that they can.

Profiles are written for English.  Another grammar may have no sentence of 4 words, no constituent of 10, or no sentence
of less than 100; every change is said, and stands in the manifests as the setting that it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import diags, identity
from scipy.sparse.linalg import splu

from pcfg_artifact.errors import ConfigError, GrammarError
from pcfg_artifact.grammar.expectation import child_matrix, reachable, spectral_radius
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sources import read_grammar
from pcfg_artifact.parsing.tree_draws import log_length_probabilities
from pcfg_artifact.run.sections import Profile
from pcfg_artifact.system.progress import say
from pcfg_artifact.treebank.binarise import is_artificial

SHARE = 0.05  # of the sentences: what fewer of them are is too rare to count on
RESERVED = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # of the models' vocabulary


def grammar_of_run(source: str, longest: int | None) -> PCFG:
    """The grammar of that source; with `longest`, of those of its constituents of which enough are no longer.

    Symbols that no sentence has are left out: nothing is measured of them.
    """
    grammar = read_grammar(source)
    if longest is not None:
        return begun_lower(grammar, longest, SHARE)
    return grammar if reachable(grammar).all() else with_root(grammar, grammar.root)


def fitted(profile: Profile) -> Profile:
    """The profile with lengths and widths that the given grammar has; a grammar that no run can use is refused."""
    assert profile.given is not None
    grammar = read_grammar(profile.given)
    check_usable(grammar, profile.given)
    widths = {name: profile.stage(name).widths for name in ("probe", "incremental", "intervene")}
    longest, factor = profile.construct.max_length, 1
    computed = 2 * max(longest, *(max(wanted) for wanted in widths.values()))  # words: all that is asked for below
    yields = yield_lengths(grammar, computed)
    if (yields[:longest + 1] @ grammar.root).sum() < SHARE:
        longest, factor = 2 * longest, 2
        if (yields[:longest + 1] @ grammar.root).sum() < SHARE:
            profile = replace(profile, grammar=replace(profile.grammar, longest=longest))
            grammar = begun_lower(grammar, longest, SHARE)
            yields = yield_lengths(grammar, computed)
            say(f"sentences of {profile.given} are too long for the profile {profile.name}: this run is of its "
                f"constituents of which enough have at most {longest} words (grammar.longest)")
    lengths = np.flatnonzero(yields[:longest + 1] @ grammar.root > 0)
    given = tuple(factor * length for length in profile.construct.lengths)
    changed: dict[str, dict[str, Any]] = {
        "construct": {"max_length": longest, "lengths": nearest(given, lengths[lengths > 1])},
        "intervene": {"constructed_length": max(profile.intervene.constructed_length, longest)}}
    for name, given in widths.items():
        possible = constituent_widths(grammar, yields[:2 * max(given) + 1])
        changed.setdefault(name, {})["widths"] = nearest(given, possible)
    for name, values in changed.items():
        for key, value in values.items():
            if value != (before := getattr(profile.stage(name), key)):
                say(f"{name}.{key} is {_text(value)} in place of {_text(before)}, for {profile.given}")
    return replace(profile, **{name: replace(profile.stage(name), **values) for name, values in changed.items()})


def check_usable(grammar: PCFG, source: str) -> None:
    """Refuse what would fail after hours, or mean nothing."""
    if not grammar.is_proper:
        raise GrammarError(f"the rules of {source} do not sum to 1, so that no sentence can be drawn from it; "
                           f"normalise them")
    radius = spectral_radius(grammar, among=reachable(grammar))
    if not radius < 1:
        raise GrammarError(f"trees drawn from {source} have no finite expected length (the spectral radius of its "
                           f"rules is {radius:.6f}, expected below 1); lower the probability of the rules that recur")
    if yield_lengths(grammar, 1)[1] @ grammar.root > 1 - SHARE:
        raise GrammarError(f"{source} has hardly a sentence of more than one word, so that there is nothing to parse; "
                           f"give a grammar with rules over two symbols or more")
    for word in grammar.words:
        if word in RESERVED or word.split() != [word]:
            raise GrammarError(f"the word {word!r} of {source} cannot be a token of a model: it is reserved or holds "
                               f"white space; rename it")


def begun_lower(grammar: PCFG, max_length: int, share: float) -> PCFG:
    """The grammar of the highest constituents of which at least `share` have at most `max_length` words.

    Each begins a sentence as often as it is met on the way down from the root.  Nodes that binarisation made are passed
    over, and so are single words.
    """
    is_short = yield_lengths(grammar, max_length).sum(axis=0) >= share
    is_short &= [not is_artificial(name) for name in grammar.nonterminals]
    # count = root + count @ children, where short symbols are not entered
    passed = diags((~is_short).astype(float)) @ child_matrix(grammar)
    count = splu((identity(grammar.n_nonterminals, format="csc") - passed).tocsc()).solve(grammar.root, trans="T")
    root = np.where(is_short, count, 0.0)
    root[grammar.n_interminals:] = 0.0
    if not root.sum() > 0:
        raise GrammarError(f"no constituent of the grammar has at most {max_length} words in {share:.0%} of the cases; "
                           f"give a grammar of shorter sentences, or raise construct.max_length")
    return with_root(grammar, root / root.sum())


def with_root(grammar: PCFG, root: np.ndarray) -> PCFG:
    """The same rules under another distribution (N,) of the symbol at the top, without symbols that it never leads to.
    """
    names, words = grammar.nonterminals, grammar.words
    is_used = reachable(PCFG(grammar.interminals, grammar.preterminals, words, root, grammar.binary,
                             grammar.binary_prob, grammar.lexical, grammar.lexical_prob, is_proper=grammar.is_proper))
    return PCFG.from_rules(
        {names[a]: float(root[a]) for a in np.flatnonzero(root)},
        [(names[a], names[b], names[c], p) for (a, b, c), p in
         zip(grammar.binary.tolist(), grammar.binary_prob.tolist(), strict=True) if is_used[a] and p > 0],
        [(names[a], words[w], p) for (a, w), p in
         zip(grammar.lexical.tolist(), grammar.lexical_prob.tolist(), strict=True)
         if is_used[a] and p > 0],
        is_proper=grammar.is_proper)


def yield_lengths(grammar: PCFG, longest: int) -> np.ndarray:
    """(longest + 1, N): probability that a symbol yields so many words."""
    return np.exp(log_length_probabilities(grammar, longest))


def constituent_widths(grammar: PCFG, yields: np.ndarray) -> np.ndarray:
    """The widths from 2 that a constituent can have in enough sentences that are longer, so that it is no whole one.

    yields: as of yield_lengths, up to the widest.
    """
    can_be: np.ndarray = yields[:, reachable(grammar)].max(axis=1) > 0
    longer = 1 - np.cumsum(yields @ grammar.root)
    return np.array([w for w in range(2, len(yields)) if can_be[w] and longer[w] >= SHARE], dtype=np.int64)


def nearest(given: tuple[int, ...], possible: np.ndarray) -> tuple[int, ...]:
    """Each number by the nearest possible one, the smaller of two; every one once."""
    if not len(possible):
        raise ConfigError("the grammar's sentences are too short for the profile: none has a constituent of two words "
                          "or more beside the whole sentence; give a grammar with longer sentences")
    return tuple(sorted({int(possible[np.abs(possible - number).argmin()]) for number in given}))


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
