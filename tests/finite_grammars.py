"""Grammars of finitely many sentences, and all of these: what is summed cleverly is compared with every sentence."""

from collections import Counter

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG


def finite_grammar(seed: int) -> PCFG:
    """In-terminals that only lead to later ones, so that every sentence can be written down; some rules never occur."""
    rng = np.random.default_rng(seed)
    interminals, preterminals, words = ["S", "A", "B", "C"], ["p", "q", "r"], ["x", "y", "z", "w"]
    binary = []
    for k, parent in enumerate(interminals):
        below = interminals[k + 1:] + preterminals
        rules = {(str(left), str(right)) for left, right in rng.choice(below, (3, 2))}
        for (left, right), share in zip(rules, rng.dirichlet(np.ones(len(rules))), strict=True):
            binary.append((parent, left, right, share))
    first = binary.pop()  # a rule of probability zero, its share given to another of the same parent
    binary[-1] = (*binary[-1][:3], binary[-1][3] + first[3]) if binary[-1][0] == first[0] else binary[-1]
    binary.append((*first[:3], 0.0) if binary[-1][0] == first[0] else first)
    lexical = [(tag, word, share) for tag in preterminals
               for word, share in zip(words, rng.dirichlet(np.ones(len(words))), strict=True)]
    return PCFG.from_rules(root={"S": 0.7, "B": 0.3}, binary=binary, lexical=lexical)


def language(grammar: PCFG, symbol: int) -> Counter:
    """Sentence -> probability, by writing out every derivation."""
    found: Counter = Counter()
    for (a, word), p in zip(grammar.lexical, grammar.lexical_prob, strict=True):
        if a == symbol and p > 0:
            found[(int(word),)] += p
    for (a, left, right), p in zip(grammar.binary, grammar.binary_prob, strict=True):
        if a == symbol and p > 0:
            for first, p_first in language(grammar, left).items():
                for second, p_second in language(grammar, right).items():
                    found[first + second] += p * p_first * p_second
    return found


def sentences(grammar: PCFG) -> Counter:
    """Every sentence, as word ids, with its probability."""
    found: Counter = Counter()
    for symbol in np.flatnonzero(grammar.root):
        for words, p in language(grammar, int(symbol)).items():
            found[words] += grammar.root[symbol] * p
    return found
