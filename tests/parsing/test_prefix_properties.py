"""Next words of random grammars: distributions, chains, and posteriors that only more words can settle."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.prefix.left_to_right import Prefix, incremental_posteriors, next_words
from pcfg_artifact.parsing.prefix.tree_facts import facts_so_far

SUM = 1e-10
TIGHT = 1e-9


@st.composite
def grammars(draw) -> PCFG:
    """Proper, with rules of probability 0, any root; recursive symbols end or not, but always come to a first word."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_inner, n_leaf, n_words = (int(rng.integers(1, 5)) for _ in range(3))
    inner, leaf = [f"I{a}" for a in range(n_inner)], [f"P{p}" for p in range(n_leaf)]

    def distribution(size: int) -> np.ndarray:
        weights = rng.exponential(size=size) * (rng.random(size) < draw(st.sampled_from([0.1, 0.5, 1.0])))
        weights[rng.integers(size)] += 0.1
        return weights / weights.sum()

    names = inner + leaf
    ending = draw(st.sampled_from([0.1, 0.6]))  # share of every symbol that begins with a pre-terminal
    binary = []
    for a in inner:
        rules = (1 - ending) * distribution(len(names) ** 2).reshape(len(names), len(names))
        rules[n_inner:, n_inner:] += ending * distribution(n_leaf ** 2).reshape(n_leaf, n_leaf)
        binary += [(a, b, c, rules[i, j]) for i, b in enumerate(names) for j, c in enumerate(names)]
    lexical = [(p, f"w{w}", prob) for p in leaf for w, prob in enumerate(distribution(n_words))]
    return PCFG.from_rules(dict(zip(names, distribution(len(names)), strict=True)), binary, lexical)


def sentence_of(grammar: PCFG, seed: int, length: int) -> np.ndarray:
    """Words drawn from what can follow, so that the sentence is a beginning of some sentence, then any words."""
    rng, prefix = np.random.default_rng(seed), Prefix(grammar)
    while prefix.length < length:
        follows = prefix.next_word[:-1]
        if not follows.any() or rng.random() < 0.05:
            prefix.extend(int(rng.integers(grammar.n_words)))
        else:
            prefix.extend(int(rng.choice(grammar.n_words, p=follows / follows.sum())))
    return np.array(prefix.ids, np.int64)


@settings(max_examples=40, deadline=None)
@given(grammar=grammars(), seed=st.integers(0, 10**6), length=st.integers(0, 12))
def test_next_words_and_the_end_sum_to_one_and_their_chain_is_the_sentence(grammar, seed, length):
    sentence = sentence_of(grammar, seed, length)
    found = next_words(grammar, sentence)
    n_possible = length + 1 if found.impossible_at is None else found.impossible_at + 1
    np.testing.assert_allclose(found.next_word[:n_possible].sum(axis=1), 1.0, rtol=0, atol=SUM)
    assert not found.next_word[n_possible:].any()
    assert (found.next_word >= 0).all()
    log_prob = inside_outside(grammar, [sentence])[0].log_prob
    assert (found.log_prob == -np.inf) == (log_prob == -np.inf)
    if log_prob > -np.inf:
        assert abs(found.log_prefix[0] + found.log_probs.sum() - log_prob) < TIGHT


@settings(max_examples=25, deadline=None)
@given(grammar=grammars(), seed=st.integers(0, 10**6), length=st.integers(1, 9))
def test_posteriors_are_a_martingale_that_ends_at_the_marginals(grammar, seed, length):
    """The mean over the next word, weighted by its probability, of a span's posterior is the posterior now."""
    sentence = sentence_of(grammar, seed, length)
    *before, ended = incremental_posteriors(grammar, sentence)
    np.testing.assert_allclose(ended.labelled, inside_outside(grammar, [sentence])[0].marginals, rtol=0, atol=TIGHT)
    prefix = Prefix(grammar)
    for w in sentence[:length // 2]:
        prefix.extend(int(w))
    now, t = prefix.posteriors().spans, prefix.length
    np.testing.assert_allclose(before[t].spans, now, rtol=0, atol=TIGHT)
    mean = prefix.next_word[-1] * prefix.posteriors(has_ended=True).spans
    for w in np.flatnonzero(prefix.next_word[:-1]):
        longer = Prefix(grammar)
        for word in [*sentence[:t], w]:
            longer.extend(int(word))
        mean = mean + prefix.next_word[w] * longer.posteriors().spans[:t + 1, :t + 1]
    np.testing.assert_allclose(mean, now, rtol=0, atol=TIGHT)
    if prefix.is_possible:
        np.testing.assert_allclose(np.diagonal(now, offset=1), 1.0, rtol=0, atol=TIGHT)  # words are spans
    np.testing.assert_allclose(prefix.ending_spans(), now[:t, t], rtol=0, atol=TIGHT)


@settings(max_examples=25, deadline=None)
@given(grammar=grammars(), seed=st.integers(0, 10**6), length=st.integers(1, 8))
def test_reading_word_by_word_is_reading_at_once(grammar, seed, length):
    sentence = sentence_of(grammar, seed, length)
    whole, prefix = next_words(grammar, sentence), Prefix(grammar, longest=1)
    for t, w in enumerate(sentence):
        np.testing.assert_array_equal(prefix.next_word, whole.next_word[t])
        assert prefix.n_open == whole.n_open[t]
        np.testing.assert_allclose(prefix.log_prob, whole.log_prefix[t], rtol=0, atol=TIGHT)
        prefix.extend(int(w))
    np.testing.assert_array_equal(prefix.next_word, whole.next_word[-1])
    assert prefix.impossible_at == whole.impossible_at


@settings(max_examples=30, deadline=None)
@given(grammar=grammars(), seed=st.integers(0, 10**6), length=st.integers(0, 6))
def test_what_is_open_is_what_the_next_word_leaves_open_less_what_it_changes(grammar, seed, length):
    """E[open before] = sum over w of P(w) (E[open after w] - E[relative depth of w]); nothing is open after the end."""
    sentence = sentence_of(grammar, seed, length)
    before = next_words(grammar, sentence)
    if before.impossible_at is not None:
        return
    total = 0.0
    for w, probability in enumerate(before.next_word[-1, :-1]):
        if probability > 0:
            facts = facts_so_far(grammar, np.append(sentence, w))
            total += probability * (facts.n_open[-1] - facts.relative_depth[-1])
    np.testing.assert_allclose(total, before.n_open[-1], rtol=TIGHT, atol=TIGHT)
