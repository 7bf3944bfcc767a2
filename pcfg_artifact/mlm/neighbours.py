"""Word vectors from neighbours: which words stand to the left and to the right of a word in the training sentences.

Two words that the same pre-terminals emit have the same neighbours, so these vectors tell parts of speech apart before
any training.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.utils.extmath import randomized_svd

from pcfg_artifact.system.ragged import Ragged

N_SENTENCES = 100_000  # counted, from the first: more change the vectors of rare words only
N_POWER_ITERATIONS = 6  # of the truncated SVD; more do not change what a model reaches


def word_counts(sentences: Ragged, n_words: int) -> np.ndarray:
    """(n_words,) how often each word occurs in the counted sentences."""
    return np.bincount(_counted(sentences), minlength=n_words)


def neighbour_counts(sentences: Ragged, n_words: int) -> csr_matrix:
    """(n_words, 2 * (n_words + 1)): left neighbours, then right ones; column n_words of each is the sentence's edge."""
    words = _counted(sentences)
    begins, ends = (np.zeros(len(words), bool) for _ in range(2))
    offsets = sentences.offsets[:N_SENTENCES + 1]
    is_filled = np.diff(offsets) > 0
    begins[offsets[:-1][is_filled]] = ends[offsets[1:][is_filled] - 1] = True
    left = np.where(begins, n_words, np.roll(words, 1))
    right = np.where(ends, n_words, np.roll(words, -1)) + n_words + 1
    ones, rows = np.ones(2 * len(words)), np.concatenate([words, words])
    # Entries of the same place are added up.
    return csr_matrix((ones, (rows, np.concatenate([left, right]))), shape=(n_words, 2 * (n_words + 1)))


def positive_pmi(counts: csr_matrix) -> csr_matrix:
    """max(0, log p(word, neighbour) / (p(word) p(neighbour))) of a matrix of counts; pairs never seen stay 0."""
    pairs = counts.tocoo()
    total = pairs.data.sum()
    by_word, by_neighbour = (np.asarray(counts.sum(axis=axis)).ravel() for axis in (1, 0))
    pmi = np.log(pairs.data * total / (by_word[pairs.row] * by_neighbour[pairs.col]))
    return csr_matrix((np.maximum(pmi, 0.0), (pairs.row, pairs.col)), shape=counts.shape)


def neighbour_vectors(sentences: Ragged, n_words: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """(n_words, width) U sqrt(S) of the left and right PPMI, in a random basis, with entries of unit mean square."""
    counts = neighbour_counts(sentences, n_words)
    sides = (counts[:, :n_words + 1], counts[:, n_words + 1:])
    pmi = hstack([positive_pmi(side) for side in sides], format="csr")
    rank = min(width, n_words)
    u, s, _ = randomized_svd(pmi, rank, n_iter=N_POWER_ITERATIONS, random_state=int(rng.integers(2**31)))
    vectors = np.zeros((n_words, width))
    vectors[:, :rank] = u * np.sqrt(s)
    vectors = vectors @ random_rotation(width, rng)  # else the first coordinates carry nearly everything
    return vectors / np.sqrt((vectors**2).mean())


def random_rotation(width: int, rng: np.random.Generator) -> np.ndarray:
    """(width, width) orthogonal, from the uniform distribution."""
    q, r = np.linalg.qr(rng.standard_normal((width, width)))
    return q * np.sign(np.diag(r))


def _counted(sentences: Ragged) -> np.ndarray:
    last = sentences.offsets[min(N_SENTENCES, sentences.n_rows)]
    return np.asarray(sentences.values[:last], np.int64)
