"""Spectral learning recovers a known latent-variable PCFG: string probabilities converge as the sample grows."""

from itertools import product

import numpy as np
import pytest

from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.grammar.spectral import learn_spectral
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.latent_engine import latent_inside_outside
from pcfg_artifact.treebank.tree import Tree

STATES = {"S": 2, "X": 3, "P": 3, "Q": 4}
SKELETON = {("S", "X", "S"): 0.2, ("S", "P", "X"): 0.4, ("S", "P", "Q"): 0.4,
            ("X", "P", "Q"): 0.4, ("X", "Q", "Q"): 0.4, ("X", "Q", "X"): 0.2}
WORDS = "abcde"
SIZES = (300, 3_000, 20_000)
# A string's error falls like 1 / sqrt(n); between two sizes a factor 7 apart that is 2.6, and smoothing slows it.
FALL = 0.7


def known_grammar(seed: int) -> PCFG:
    """A latent-variable PCFG written as a PCFG over pairs symbol~state, with states that differ strongly."""
    rng = np.random.default_rng(seed)
    binary, lexical = [], []
    for a, n_states in STATES.items():
        for x in range(n_states):
            if a in "PQ":
                lexical += [(f"{a}~{x}", w, p) for w, p in zip(WORDS, rng.dirichlet([0.3] * len(WORDS)), strict=True)]
                continue
            rules = {rule: weight * rng.uniform(0.5, 1.5) for rule, weight in SKELETON.items() if rule[0] == a}
            for (_, b, c), weight in rules.items():
                split = rng.dirichlet([0.25] * (STATES[b] * STATES[c])).reshape(STATES[b], STATES[c])
                binary += [(f"{a}~{x}", f"{b}~{y}", f"{c}~{z}", p * weight / sum(rules.values()))
                           for (y, z), p in np.ndenumerate(split)]
    return PCFG.from_rules({"S~0": 0.7, "S~1": 0.3}, binary, lexical)


def without_states(tree: Tree) -> Tree:
    return Tree(tree.label.split("~")[0], tuple(map(without_states, tree.children)), tree.word)


@pytest.mark.parametrize("seed", [0, 2])
def test_string_probabilities_converge_to_the_true_ones(seed):
    source = known_grammar(seed)
    strings = [list(words) for length in (2, 3) for words in product(WORDS, repeat=length)]
    true = np.exp([chart.log_prob for chart in inside_outside(source, strings)])
    sampled = [without_states(tree) for tree in sample_trees(source, max(SIZES), seed=seed)]
    errors, plain_errors = [], []
    for n in SIZES:
        pcfg = learn_pcfg(sampled[:n], "novm", cutoff=0)
        latent = learn_spectral(sampled[:n], pcfg, "novm", max(STATES["S"], STATES["X"]), STATES["Q"])
        plain = inside_outside(pcfg, strings)
        estimate = [chart.total * np.exp(chart.log_pcfg)
                    for chart in latent_inside_outside(latent, strings, pruning=0.0)]
        errors.append(np.abs(estimate - true).sum())
        plain_errors.append(np.abs(np.exp([chart.log_prob for chart in plain]) - true).sum())
    assert errors[1] < FALL * errors[0]
    assert errors[2] < FALL * errors[1]
    assert errors[2] < 0.1 * true.sum()
    assert errors[2] < 0.35 * plain_errors[2]  # which stays: no PCFG over these symbols is right
