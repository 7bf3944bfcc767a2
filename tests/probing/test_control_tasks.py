"""Control labels: a function of the words alone, random across words."""

import numpy as np

from pcfg_artifact.probing.control_tasks import pair_label, pair_labels, word_label, word_labels

WORDS = [f"word{i}" for i in range(6000)]


def test_word_labels_are_a_function_of_the_word_alone_and_the_same_in_train_and_test():
    train, test = [["the", "dog", "saw", "the", "cat"]], [["a", "cat", "the", "end"], ["the", "dog", "."]]
    seen = {}
    for sentences in (train, test):
        positions = [word for words in sentences for word in words[:-1]]
        for word, label in zip(positions, word_labels(sentences, 3), strict=True):
            assert seen.setdefault(word, label) == label
    assert set(seen) == {"the", "dog", "saw", "a", "cat"}


def test_pair_labels_are_a_function_of_the_ordered_pair_alone():
    sentences = [["a", "b", "a", "b"], ["x", "a", "b"]]
    labels = pair_labels(sentences, 2, 0)
    assert len(labels) == 5
    assert labels[0] == labels[2] == labels[4] == np.float32(pair_label("a", "b", 0))
    assert labels[0] != labels[1]
    assert len(pair_labels(sentences, 4, 0)) == 1


def test_word_labels_are_uniform_on_three_values_and_change_with_the_seed():
    labels = np.array([word_label(word, 0) for word in WORDS])
    assert set(labels) == {-1, 0, 1}
    share = np.bincount(labels + 1) / len(labels)
    assert np.abs(share - 1 / 3).max() < 3 * np.sqrt(2 / 9 / len(labels))
    other = np.array([word_label(word, 1) for word in WORDS])
    assert abs((labels == other).mean() - 1 / 3) < 3 * np.sqrt(2 / 9 / len(labels))


def test_pair_labels_are_uniform_on_the_unit_interval():
    values = np.sort([pair_label(word, "x", 0) for word in WORDS])
    assert values[0] >= 0
    assert values[-1] < 1
    # Kolmogorov-Smirnov distance from the uniform law; 1.63/sqrt(n) is its 1% point.
    assert np.abs(values - np.arange(len(values)) / len(values)).max() < 1.63 / np.sqrt(len(values))
