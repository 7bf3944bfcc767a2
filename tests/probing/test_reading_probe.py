"""Questions at words, by hand; the share of variance; and a probe that can only read what is there."""

import numpy as np
import pytest

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.prefix.left_to_right import beliefs, next_words
from pcfg_artifact.parsing.prefix.tree_facts import facts_of_tree
from pcfg_artifact.probing.reading_probe import (
    OPEN,
    RELATIVE_DEPTH,
    WordQuestion,
    belief_questions,
    explained,
    late_questions,
    probe_words,
    questions_of,
    spans_at_words,
    word_coordinates,
)
from pcfg_artifact.probing.representations import word_rows

# ((a b) (c d)) and (e f)
FIRST = facts_of_tree([(0, 4), (0, 2), (2, 4), (0, 1), (1, 2), (2, 3), (3, 4)], 4)
SECOND = facts_of_tree([(0, 2), (0, 1), (1, 2)], 2)
NAN = np.nan


def test_a_span_is_asked_for_at_its_last_word_or_later():
    spans = [FIRST.spans, SECOND.spans]
    np.testing.assert_array_equal(spans_at_words(spans, 2, 0), [NAN, 1, 0, 1, NAN, 1])
    np.testing.assert_array_equal(spans_at_words(spans, 2, 1), [NAN, NAN, 1, 0, NAN, NAN])
    np.testing.assert_array_equal(spans_at_words(spans, 4, 0), [NAN, NAN, NAN, 1, NAN, NAN])
    np.testing.assert_array_equal(spans_at_words(spans, 3, 2), np.full(6, NAN))  # too long for every sentence


def test_all_questions_have_a_number_a_word():
    asked = {**questions_of([FIRST, SECOND], (2, 3)), **late_questions([[FIRST.spans, SECOND.spans]], (2,))}
    assert list(asked) == [WordQuestion("span end", 2, 0), WordQuestion("span end", 3, 0), OPEN, RELATIVE_DEPTH,
                           WordQuestion("span end", 2, 1)]
    assert {len(values) for values in asked.values()} == {6}
    np.testing.assert_array_equal(asked[OPEN], [2, 1, 2, 0, 1, 0])
    np.testing.assert_array_equal(asked[RELATIVE_DEPTH], [2, -1, 1, -2, 1, -1])


def test_rows_of_words_leave_out_the_marks():
    np.testing.assert_array_equal(word_rows([2, 3])[0], [1, 2, 5, 6, 7])


def test_the_share_of_variance_by_hand():
    wanted = np.array([0.0, 2.0, NAN, 4.0])
    for answers, share in ((wanted, 1.0), (np.full(4, 2.0), 0.0), (np.array([0.0, 2.0, 9.0, 2.0]), 0.5)):
        found = explained(wanted, answers)
        assert (found.value, found.n) == (share, 3)
    assert np.isnan(explained(np.ones(3), np.ones(3)).value)
    assert np.isnan(explained(np.full(2, NAN), np.ones(2)).value)


def test_a_linear_probe_finds_what_is_linear_and_nothing_in_noise():
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(size=(2000, 5)).astype(np.float32), rng.normal(size=(500, 5)).astype(np.float32)
    targets = {"linear": x @ np.arange(5) + 3, "noise": rng.normal(size=2000)}
    found = probe_words(x, targets, x_test)
    assert explained(x_test @ np.arange(5) + 3.0, found["linear"]).value == pytest.approx(1.0, abs=1e-6)
    assert explained(rng.normal(size=500), found["noise"]).value < 0.05


NEXT = PCFG.from_rules({"1": 1.0}, [("1", "2", "3", 0.6), ("1", "2", "1", 0.4)],
                       [("2", "1", 0.7), ("2", "2", 0.3), ("3", "2", 0.5), ("3", "3", 0.5), ("3", "1", 0.0)])


def test_beliefs_are_asked_by_constituents_by_tags_and_by_words():
    sentences = [["1", "2", "3"], ["2", "3"]]
    asked = belief_questions(NEXT, [beliefs(NEXT, words)[1:] for words in sentences])
    constituents, tags, words = asked.values()
    # After the first word: 3 with 0.6, or another 1, whose first word is a 2.
    np.testing.assert_allclose(constituents[0], [0.4], rtol=1e-6)
    np.testing.assert_allclose(tags[0], [0.4, 0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(tags[[2, 4]], [[0, 0, 1]] * 2, atol=1e-6)  # the end
    exact = np.concatenate([next_words(NEXT, sentence).next_word[1:] for sentence in sentences])
    between = np.linalg.norm(exact[:, None] - exact[None, :], axis=-1)
    np.testing.assert_allclose(np.linalg.norm(words[:, None] - words[None, :], axis=-1), between, atol=1e-6)


def test_the_share_of_next_words_is_that_over_the_whole_vocabulary():
    rng = np.random.default_rng(0)
    emission = np.array([[0.7, 0.3, 0.0], [0.0, 0.5, 0.5]])[:, [NEXT.words.index(w) for w in "123"]]
    truth, answers = rng.random((50, 2)), rng.random((50, 2))
    coordinates = word_coordinates(NEXT)
    short, whole = (explained(truth @ m, answers @ m).value for m in (coordinates, emission))
    assert short == pytest.approx(whole, abs=1e-6)
    assert explained(np.ones((3, 2)) * [1, 2], np.zeros((3, 2))).n == 3


def test_a_question_with_a_vector_is_answered_as_its_numbers_one_by_one():
    rng = np.random.default_rng(1)
    x, x_test, y = rng.normal(size=(200, 4)), rng.normal(size=(20, 4)), rng.normal(size=(200, 3))
    together = probe_words(x.copy(), {OPEN: y[:, 0], RELATIVE_DEPTH: y}, x_test.copy())
    assert together[OPEN].shape == (20,)
    assert together[RELATIVE_DEPTH].shape == (20, 3)
    for n in range(3):
        alone = probe_words(x.copy(), {OPEN: y[:, n]}, x_test.copy())[OPEN]
        np.testing.assert_allclose(together[RELATIVE_DEPTH][:, n], alone, atol=1e-5)
