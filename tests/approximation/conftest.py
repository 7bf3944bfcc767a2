"""Random grammars for the approximate algorithms: missing rules, rules of probability 0, a root distribution."""

import numpy as np
import pytest

from pcfg_artifact.grammar.pcfg import PCFG


def _random_grammar(seed: int, n_interminals: int = 6, n_preterminals: int = 5, n_words: int = 8,
                    density: float = 0.5) -> PCFG:
    rng = np.random.default_rng(seed)
    n = n_interminals + n_preterminals
    names = [f"I{a}" for a in range(n_interminals)] + [f"P{a}" for a in range(n_preterminals)]
    binary = rng.random((n_interminals, n, n)) * (rng.random((n_interminals, n, n)) < density)
    binary[:, -1, -2] += 0.3
    binary /= binary.sum(axis=(1, 2), keepdims=True)
    lexical = rng.random((n_preterminals, n_words)) * (rng.random((n_preterminals, n_words)) < density)
    lexical[np.arange(n_preterminals), np.arange(n_preterminals) % n_words] += 0.2
    lexical /= lexical.sum(axis=1, keepdims=True)
    root = rng.dirichlet(np.ones(n))
    rules = [(names[a], names[b], names[c], binary[a, b, c]) for a, b, c in np.argwhere(binary > 0)]
    rules += [(names[a], names[b], names[c], 0.0) for a, b, c in np.argwhere(binary == 0)[:4]]
    counts = dict(zip(names, rng.integers(1, 1000, n).tolist(), strict=True))
    return PCFG.from_rules(
        root=dict(zip(names, root.tolist(), strict=True)), binary=rules, symbol_counts=counts,
        lexical=[(names[n_interminals + p], f"w{w}", lexical[p, w]) for p, w in np.argwhere(lexical > 0)])


def _random_transforms(seed: int, n: int, rank: int, widths=range(2, 8)) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {width: np.linalg.qr(rng.normal(size=(n, n)))[0][:rank] for width in widths}


@pytest.fixture(scope="session")
def random_grammar():
    return _random_grammar


@pytest.fixture(scope="session")
def random_transforms():
    return _random_transforms
