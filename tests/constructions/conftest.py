"""The slow, obvious twin of the constructions: textbook Inside-Outside in linear space, and random grammars."""

import numpy as np
import pytest

from pcfg_artifact.approximation.restriction import compact
from pcfg_artifact.approximation.transforms import SIGN_RULES
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.system.machine import single_thread
from tests.approximation.projected_reference import projected_inside, projected_outside

N_WORDS = 7


def _random_grammar(seed: int, *, n_interminals: int = 4, n_preterminals: int = 5, n_words: int = N_WORDS,
                    root: str = "single", density: float = 0.6) -> PCFG:
    """Random rules, some of them missing and some of probability 0; root "single" or a distribution over all of N."""
    rng = np.random.default_rng(seed)
    n = n_interminals + n_preterminals
    binary = rng.random((n_interminals, n, n)) * (rng.random((n_interminals, n, n)) < density)
    binary[:, -2, -1] += 0.1
    binary /= binary.sum(axis=(1, 2), keepdims=True)
    lexical = rng.random((n_preterminals, n_words)) * (rng.random((n_preterminals, n_words)) < density)
    lexical[np.arange(n_preterminals), np.arange(n_preterminals) % n_words] += 0.1
    lexical /= lexical.sum(axis=1, keepdims=True)
    pi = np.eye(n)[0] if root == "single" else rng.dirichlet(np.ones(n))
    a, b, c = np.nonzero(binary)
    p, w = np.nonzero(lexical)
    zero = np.argwhere(binary == 0)[:3]  # rules that exist and have no probability
    rules = np.concatenate([np.stack([a, b, c], axis=1), zero])
    return PCFG(
        interminals=tuple(f"I{x}" for x in range(n_interminals)), words=tuple(f"w{x}" for x in range(n_words)),
        preterminals=tuple(f"P{x}" for x in range(n_preterminals)), root=pi, binary=rules.astype(np.int32),
        binary_prob=np.concatenate([binary[a, b, c], np.zeros(len(zero))]),
        lexical=np.stack([p + n_interminals, w], axis=1).astype(np.int32), lexical_prob=lexical[p, w])


def _textbook(grammar: PCFG, sentence, *, typed: bool = True, leaves=None):
    """inside, outside (L+1, L+1, N) in linear space, the recursion as it is written."""
    n_i, n_all, length = grammar.n_interminals, grammar.n_nonterminals, len(sentence)
    rules = np.zeros((n_all,) * 3)
    rules[tuple(grammar.binary.T)] = grammar.binary_prob
    emission = np.zeros((n_all, grammar.n_words))
    emission[tuple(grammar.lexical.T)] = grammar.lexical_prob
    alpha, beta = np.zeros((2, length + 1, length + 1, n_all))
    for i, word in enumerate(sentence):
        alpha[i, i + 1] = emission[:, grammar.word_index[word]] if leaves is None else leaves[i]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            j = i + width
            for k in range(i + 1, j):
                alpha[i, j] += np.einsum("abc,b,c->a", rules, alpha[i, k], alpha[k, j])
    beta[0, length] = grammar.root
    for width in range(length - 1, 0, -1):
        for i in range(length - width + 1):
            j = i + width
            for k in range(i):
                beta[i, j] += np.einsum("bca,c,b->a", rules, alpha[k, i], beta[k, j])
            for k in range(j + 1, length + 1):
                beta[i, j] += np.einsum("bac,c,b->a", rules, alpha[j, k], beta[i, k])
    if typed:
        for i in range(length):
            beta[i, i + 1, :n_i] = 0
            for j in range(i + 2, length + 1):
                beta[i, j, n_i:] = 0
    return alpha, beta


def _textbook_approximate(grammar: PCFG, sentence, interminals, preterminals, transforms=None, rule="clip"):
    """Few non-terminals, projected by W+ W where transforms are given: the recurrences of projected_reference."""
    few, n_i, size = compact(grammar, interminals), grammar.n_interminals, grammar.n_nonterminals

    def project(width, vector):
        if transforms is None:
            return vector
        w = transforms[max(known for known in transforms if known <= width)]
        return np.linalg.pinv(w) @ (w @ vector)

    emission = np.zeros((grammar.n_preterminals, grammar.n_words))
    emission[grammar.lexical[:, 0] - n_i, grammar.lexical[:, 1]] = grammar.lexical_prob
    leaves = emission[:, [grammar.word_index[word] for word in sentence]].T
    few_alpha = projected_inside(few, leaves, project, SIGN_RULES[rule])
    few_beta = projected_outside(few, few_alpha, project, SIGN_RULES[rule])
    alpha, beta = np.zeros((2, *few_alpha.shape[:2], size))
    old_ids = np.concatenate([interminals, np.arange(n_i, size)])
    alpha[..., old_ids], beta[..., old_ids] = few_alpha, few_beta
    children = np.unique(grammar.binary[np.isin(grammar.binary[:, 0], interminals), 1:])
    alpha[..., np.setdiff1d(np.arange(n_i, size), children)] = 0  # the model has no such leaves
    beta[..., np.setdiff1d(np.arange(n_i, size), preterminals)] = 0
    if len(sentence) == 1:
        beta[0, 1] = 0  # the root is cut to in-terminals
    return alpha, beta


def _spanwise_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest max |found - expected| / max |expected| of a span: entries that W+ W nearly cancels have no digits."""
    error, size = np.abs(found - expected).max(axis=-1), np.abs(expected).max(axis=-1)
    return np.inf if (error[size == 0] > 0).any() else float(np.max(error[size > 0] / size[size > 0], initial=0.0))


def _relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest |found - expected| / expected; infinite if a zero is not exactly zero."""
    if not (found[expected == 0] == 0).all():
        return np.inf
    return float(np.max(np.abs(found - expected)[expected != 0] / expected[expected != 0], initial=0.0))


@pytest.fixture(autouse=True)
def one_thread():
    """As the stage runs them: beside other work, two threads mostly wait for each other."""
    with single_thread():
        yield


@pytest.fixture
def random_grammar():
    return _random_grammar


@pytest.fixture
def textbook():
    return _textbook


@pytest.fixture
def textbook_approximate():
    return _textbook_approximate


@pytest.fixture
def spanwise_error():
    return _spanwise_error


@pytest.fixture
def random_transforms():
    def draw(seed: int, rank: int, n: int, widths) -> dict[int, np.ndarray]:
        rng = np.random.default_rng([seed, rank])
        return {width: np.linalg.qr(rng.normal(size=(n, rank)) + 1.0)[0].T for width in widths}
    return draw


@pytest.fixture
def relative_error():
    return _relative_error


@pytest.fixture
def random_sentence():
    def draw(grammar: PCFG, length: int, seed: int = 0) -> list[str]:
        return list(np.random.default_rng([seed, length]).choice(grammar.words, length))
    return draw
