"""What no model can be better than on the sentences of a grammar: its exact losses, entropy and ambiguity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pcfg_artifact.grammar.expectation import derivation_entropy, expected_length
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions, log_probabilities
from pcfg_artifact.parsing.masking import masked_log_probs
from pcfg_artifact.parsing.masks import NAMED_MASKS

MASKS = ("mask 0.15", "mask 0.40")
ONE_TREE = 1e-9  # nats: a sentence whose drawn tree has all but this of its log probability has no other


class Floor(NamedTuple):
    """A number and its standard error over sentences; 0 where it is exact."""

    value: float
    error: float = 0.0


def floors(grammar: PCFG, n: int, seed: int = 0, options: EngineOptions = DEFAULT) -> dict[str, Floor]:
    """By name: mean_length in words, exact; tree_entropy in nats a word, exact; ambiguous, the share of sentences with
    several trees; next_word in nats, of words and ends; and the masked words of each of MASKS, in nats.

    From n drawn sentences.  A sentence has as much next-word loss as its log
    probability says, and the mean of that is the entropy of trees less what a sentence leaves open of its tree: only
    this part is estimated, so that next_word is exact where sentences have one tree.
    """
    drawn = sample_trees(grammar, n, seed)
    rules = np.concatenate([grammar.binary_prob, grammar.lexical_prob])
    log_rules = np.log(rules, out=np.full(len(rules), -np.inf), where=rules > 0)
    roots = np.concatenate([grammar.binary[:, 0], grammar.lexical[:, 0]])
    sentences = [np.asarray(row, np.int64) for row in drawn.tokens.rows()]
    of_trees = np.array([log_rules[row].sum() + np.log(grammar.root[roots[row[0]]]) for row in drawn.rules.rows()])
    of_sentences = np.array(list(log_probabilities(grammar, sentences, options)))
    open_part = np.maximum(of_sentences - of_trees, 0.0)
    open_part[open_part <= ONE_TREE * np.maximum(1.0, -of_trees)] = 0.0
    length, entropy = expected_length(grammar), derivation_entropy(grammar)
    is_ambiguous, share = open_part > 0, float((open_part > 0).mean())
    found = {
        "mean_length": Floor(length), "tree_entropy": Floor(entropy / length),
        "ambiguous": Floor(share, float(is_ambiguous.std() / np.sqrt(n))),
        "next_word": Floor((entropy - float(open_part.mean())) / (length + 1),
                           float(open_part.std() / np.sqrt(n)) / (length + 1))}
    for name in MASKS:
        losses = masked_log_probs(grammar, sentences, NAMED_MASKS[name], seed, options=options)
        found[name] = ratio([(-float(one.sum()), len(one)) for one in losses])
    return found


def ratio(parts: list[tuple[float, int]]) -> Floor:
    """The mean of some numbers that come in sums of several, one sum a sentence."""
    sums, counts = np.array(parts, np.float64).T
    mean = sums.sum() / counts.sum()
    return Floor(float(mean), float(np.sqrt(np.square(sums - mean * counts).sum()) / counts.sum()))
