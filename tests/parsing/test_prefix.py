"""Reading from left to right: against enumeration, against the recurrence written out, and against Inside-Outside."""

from itertools import product

import numpy as np
import pytest

from pcfg_artifact.errors import GrammarError, UsageError
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.rulefile import from_text
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.prefix.left_to_right import Prefix, incremental_posteriors, next_words
from pcfg_artifact.parsing.prefix.prefix_grammar import prefix_grammar, termination
from tests.parsing import prefix_reference

TIGHT = 1e-9  # relative: float64 sums of products in another order
SUM = 1e-10  # of a distribution
SPACES = (None, True)  # linear, logarithms


def ending_grammar(random_grammar, seed: int, n_interminals: int = 3, n_preterminals: int = 2, n_words: int = 3,
                   density: float = 0.5) -> PCFG:
    """A random proper grammar whose trees end: more than half of every symbol's mass goes to two pre-terminals."""
    grammar = random_grammar(seed, n_interminals, n_preterminals, n_words, density)
    names = grammar.nonterminals
    rules = {tuple(names[a] for a in rule): 0.45 * p
             for rule, p in zip(grammar.binary, grammar.binary_prob, strict=True)}
    for n, a in enumerate(grammar.interminals):
        short = (a, grammar.preterminals[n % n_preterminals], grammar.preterminals[0])
        rules[short] = rules.get(short, 0.0) + 0.55
    lexical = [(names[a], grammar.words[w], p)
               for (a, w), p in zip(grammar.lexical, grammar.lexical_prob, strict=True)]
    return PCFG.from_rules(dict(zip(names, grammar.root, strict=True)),
                           [(*rule, p) for rule, p in rules.items()], lexical)


def read(grammar: PCFG, sentence, log=None, longest: int = 1) -> list[Prefix]:
    """The same words read again for every prefix, in linear space or in log space."""
    found = []
    for t in range(len(sentence) + 1):
        prefix = Prefix(grammar, longest)
        prefix._begin(longest, log)
        for word in sentence[:t]:
            prefix.extend(word)
        found.append(prefix)
    return found


# ---- enumeration -----------------------------------------------------------------------------------------------------

FINITE = PCFG.from_rules(  # 3 to 6 words, ambiguous; one-word sentences from two root pre-terminals; a rule of 0
    root={"S": 0.8, "N": 0.15, "V": 0.05},
    binary=[("S", "NP", "VP", 0.6), ("S", "N", "VP", 0.4), ("NP", "D", "N", 0.7), ("NP", "N", "N", 0.3),
            ("VP", "V", "N", 0.5), ("VP", "V", "NP", 0.3), ("VP", "V", "D", 0.0), ("VP", "X", "N", 0.2),
            ("X", "V", "N", 1.0)],
    lexical=[("N", "a", 0.6), ("N", "b", 0.4), ("V", "a", 0.3), ("V", "c", 0.7), ("D", "b", 1.0)])


@pytest.fixture(scope="module")
def finite_trees(all_trees):
    """Every tree of FINITE: sentence, weight, nodes."""
    from pcfg_artifact.parsing.leaves import sentence_leaves

    found = []
    for length in range(1, 7):
        for ids in product(range(FINITE.n_words), repeat=length):
            leaves = sentence_leaves(FINITE, np.array(ids))
            found += [(ids, weight, nodes) for weight, nodes in all_trees(FINITE, leaves)]
    return found


def test_the_finite_grammar_has_no_tree_but_those_enumerated(finite_trees):
    assert sum(weight for _, weight, _ in finite_trees) == pytest.approx(1.0)
    assert max(len(ids) for ids, _, _ in finite_trees) < 6  # so that longer ones were looked for


@pytest.mark.parametrize("log", SPACES)
def test_everything_equals_enumeration_of_all_trees_that_begin_so(finite_trees, log):
    n_checked = 0
    for ids in sorted({tree[0][:t] for tree in finite_trees for t in range(len(tree[0]) + 1)}):
        t = len(ids)
        trees = [tree for tree in finite_trees if tree[0][:t] == ids]
        total = sum(weight for _, weight, _ in trees)
        prefix = read(FINITE, ids, log)[-1]
        assert prefix.log_prob == pytest.approx(np.log(total), abs=TIGHT)
        expected = np.zeros(FINITE.n_words + 1)
        n_open, labelled = 0.0, np.zeros((t + 1, t + 1, FINITE.n_nonterminals))
        for sentence, weight, nodes in trees:
            expected[sentence[t] if len(sentence) > t else -1] += weight / total
            for a, i, j in nodes:
                n_open += weight / total * (i < t < j)
                if j <= t:
                    labelled[i, j, a] += weight / total
        np.testing.assert_allclose(prefix.next_word, expected, rtol=TIGHT, atol=1e-15)
        assert prefix.n_open == pytest.approx(n_open, abs=TIGHT)
        np.testing.assert_allclose(prefix.posteriors().labelled, labelled, rtol=TIGHT, atol=1e-15)
        np.testing.assert_allclose(prefix.ending_spans(), labelled.sum(axis=-1)[:t, t], rtol=TIGHT, atol=1e-15)
        # The slow twin says the same.
        np.testing.assert_allclose(prefix_reference.next_word(FINITE, ids), expected, rtol=TIGHT, atol=1e-15)
        assert prefix_reference.n_open(FINITE, ids) == pytest.approx(n_open, abs=TIGHT)
        n_checked += 1
    assert n_checked > 50


# ---- the recurrence written out --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("log", SPACES)
def test_engine_equals_the_reference_on_random_grammars(random_grammar, seed, log):
    rng = np.random.default_rng(seed)
    grammar = ending_grammar(random_grammar, seed, density=(0.15, 0.4, 0.9)[seed % 3])
    sentence = [int(w) for w in rng.integers(grammar.n_words, size=3 + seed % 2)]
    for t, prefix in enumerate(read(grammar, sentence, log)):
        ids = sentence[:t]
        np.testing.assert_allclose(prefix.next_word, prefix_reference.next_word(grammar, ids), rtol=TIGHT, atol=1e-15)
        total = prefix_reference.prefix_probability(grammar, ids)
        assert np.exp(prefix.log_prob) == pytest.approx(total, rel=TIGHT)
        assert prefix.n_open == pytest.approx(prefix_reference.n_open(grammar, ids), abs=TIGHT)
        for has_ended in (False, True):
            labelled = prefix.posteriors(has_ended=has_ended).labelled
            for i in range(t):
                for j in range(i + 1, t + 1):
                    for a in range(grammar.n_nonterminals):
                        expected = prefix_reference.posterior(grammar, ids, (a, i, j), has_ended)
                        assert labelled[i, j, a] == pytest.approx(expected, abs=TIGHT)


def test_posteriors_of_an_earlier_prefix_are_those_it_had(random_grammar):
    grammar = ending_grammar(random_grammar, 11, density=0.8)
    sentence = [0, 2, 1, 1, 0, 2]
    last = read(grammar, sentence)[-1]
    for t, early in enumerate(read(grammar, sentence)):
        np.testing.assert_array_equal(last.posteriors(t).labelled, early.posteriors().labelled)
        np.testing.assert_array_equal(last.posteriors(t, has_ended=True).labelled,
                                      early.posteriors(has_ended=True).labelled)
    *before, ended = incremental_posteriors(grammar, sentence)
    for t, early in enumerate(before):
        np.testing.assert_array_equal(last.posteriors(t).spans, early.spans)
    np.testing.assert_array_equal(last.posteriors(has_ended=True).spans, ended.spans)
    with pytest.raises(UsageError, match="t is 7, expected 0 to 6"):
        last.posteriors(7)


# ---- Inside-Outside --------------------------------------------------------------------------------------------------


def assert_agrees_with_inside_outside(grammar: PCFG, sentences) -> None:
    for sentence, chart in zip(sentences, inside_outside(grammar, sentences), strict=True):
        found = next_words(grammar, sentence)
        possible = slice(None if found.impossible_at is None else found.impossible_at + 1)
        np.testing.assert_allclose(found.next_word[possible].sum(axis=1), 1.0, rtol=0, atol=SUM)
        assert (found.next_word >= 0).all()
        if chart.log_prob == -np.inf:
            assert found.log_prob == -np.inf
        else:
            assert found.log_prob == pytest.approx(chart.log_prob, abs=TIGHT)
            assert found.log_prefix[0] + found.log_probs.sum() == pytest.approx(chart.log_prob, abs=TIGHT)
        prefix = Prefix(grammar)
        for w in found.ids:
            prefix.extend(int(w))
        ended = prefix.posteriors(has_ended=True)
        np.testing.assert_allclose(ended.labelled, chart.marginals, rtol=0, atol=TIGHT)


def test_after_the_end_posteriors_are_the_marginals_of_inside_outside_on_the_embedded_treebank():
    from pcfg_artifact.treebank.reading import read_treebank
    from pcfg_artifact.treebank.splits import split

    trees = split(read_treebank("embedded"))
    grammar = learn_pcfg(trees.train)
    assert_agrees_with_inside_outside(grammar, [tree.words() for tree in trees.test][:12])


@pytest.mark.craft
def test_after_the_end_posteriors_are_the_marginals_of_inside_outside_on_craft(craft_treebank, craft_grammar):
    from pcfg_artifact.treebank.splits import split

    sentences = [tree.words() for tree in split(craft_treebank).test if len(tree.words()) <= 30][:15]
    assert_agrees_with_inside_outside(craft_grammar, sentences)


@pytest.mark.parametrize("length", [63, 64, 65, 130])
def test_long_sentences_agree_with_inside_outside_and_log_space(random_grammar, length):
    """Splits on either side of a 64-bit word, and a state that has grown several times."""
    grammar = ending_grammar(random_grammar, 3, density=1.0)
    sentence = np.random.default_rng(length).integers(3, size=length)
    assert_agrees_with_inside_outside(grammar, [sentence])
    whole = next_words(grammar, sentence)
    for log in SPACES:
        prefix = Prefix(grammar, 1)
        prefix._begin(1, log)
        for t, w in enumerate(sentence):
            prefix.extend(int(w))
            np.testing.assert_allclose(prefix.next_word, whole.next_word[t + 1], rtol=TIGHT)
            assert prefix.log_prob == pytest.approx(whole.log_prefix[t + 1], abs=TIGHT)
            assert prefix.n_open == pytest.approx(whole.n_open[t + 1], rel=TIGHT)
        assert (prefix._log is True) == (log is True)


def test_on_sampled_text_the_chain_and_whole_sentences_have_the_same_perplexity(random_grammar):
    grammar = ending_grammar(random_grammar, 7, density=0.9)
    tokens = sample_trees(grammar, 80, seed=1).tokens
    sentences = [tokens.row(s).astype(np.int64) for s in range(80)]
    chain = np.array([next_words(grammar, sentence).log_probs.sum() for sentence in sentences])
    whole = np.array([chart.log_prob for chart in inside_outside(grammar, sentences)])
    np.testing.assert_allclose(chain, whole, rtol=TIGHT)
    # Fresh draws are predicted as well as they can be: surprisal minus entropy has mean 0.
    surplus = []
    for sentence in sentences:
        found = next_words(grammar, sentence)
        surplus.append((-found.log_probs - found.entropy).sum())
    assert abs(np.mean(surplus)) < 4 * np.std(surplus) / np.sqrt(len(surplus))


# ---- range of float64 ------------------------------------------------------------------------------------------------

FADING = PCFG.from_rules(  # after n words `a` only one hypothesis in 10^6n speaks for T, and only T goes on with `b`
    root={"S": 0.5, "T": 0.5},
    binary=[("S", "X", "S", 0.5), ("S", "X", "X", 0.5), ("T", "Y", "T", 0.5), ("T", "Y", "Y", 0.5)],
    lexical=[("X", "a", 1.0), ("Y", "a", 1e-6), ("Y", "b", 1.0 - 1e-6)])


def test_a_hypothesis_that_faded_beyond_float64_is_still_there_when_it_is_needed():
    n = 80  # 10^-480
    prefix = Prefix(FADING)
    for _ in range(n):
        prefix.extend("a")
    b = FADING.word_index["b"]
    assert prefix.next_word[b] == 0.0  # below what a probability can hold
    # Half of all trees of n words or more have more than n.
    assert prefix.log_next(b) == pytest.approx(n * np.log(1e-6) + np.log1p(-1e-6) + np.log(0.5), rel=TIGHT)
    prefix.extend("b")
    assert prefix.is_possible
    assert prefix.next_word[-1] == pytest.approx(0.5)
    np.testing.assert_allclose(prefix.posteriors().labelled[:, :, FADING.nonterminal_index["X"]], 0.0)
    assert_agrees_with_inside_outside(FADING, [["a"] * n + ["b", "a"], ["a"] * 300])


def test_rules_too_rare_for_linear_space_are_read_in_log_space():
    grammar = PCFG.from_rules({"S": 1.0}, [("S", "A", "A", 1.0)], [("A", "x", 1.0), ("A", "y", 1e-200)])
    found = next_words(grammar, ["y", "y"])
    assert found.log_prob == pytest.approx(2 * np.log(1e-200))
    assert found.next_word[2, -1] == pytest.approx(1.0)


# ---- trees that do not end -------------------------------------------------------------------------------------------


def test_where_trees_may_not_end_prefixes_are_those_of_the_trees_that_do():
    """S -> S S 0.7: trees end with z = 0.3 / 0.7, and given that, S -> S S has probability 0.3."""
    lexical = [("A", "x", 0.5), ("A", "y", 0.5)]
    endless = PCFG.from_rules({"S": 1.0}, [("S", "S", "S", 0.7), ("S", "A", "A", 0.3)], lexical)
    ending = PCFG.from_rules({"S": 1.0}, [("S", "S", "S", 0.3), ("S", "A", "A", 0.7)], lexical)
    sentence = ["x", "y", "y", "x", "x", "x"]
    found, expected = next_words(endless, sentence), next_words(ending, sentence)
    assert found.log_prefix[0] == pytest.approx(np.log(3 / 7), abs=TIGHT)
    assert expected.log_prefix[0] == 0.0
    np.testing.assert_allclose(found.next_word, expected.next_word, rtol=TIGHT)
    np.testing.assert_allclose(found.n_open, expected.n_open, rtol=TIGHT)
    assert_agrees_with_inside_outside(endless, [sentence, ["x"], ["x", "x"]])


def test_a_symbol_that_cannot_end_weighs_nothing():
    """T -> A T only: no sentence has a T, so the second word is certainly the last."""
    grammar = PCFG.from_rules({"S": 1.0}, [("S", "A", "A", 0.4), ("S", "A", "T", 0.6), ("T", "A", "T", 1.0)],
                              [("A", "x", 1.0)])
    found = next_words(grammar, ["x", "x", "x"])
    np.testing.assert_allclose(found.next_word, [[1, 0], [1, 0], [0, 1], [0, 0]])
    assert found.log_prefix[0] == pytest.approx(np.log(0.4))
    assert found.impossible_at == 2


def test_a_grammar_at_the_border_of_ending_is_taken_as_it_is():
    grammar = PCFG.from_rules({"S": 1.0}, [("S", "S", "S", 0.5), ("S", "A", "A", 0.5)], [("A", "x", 1.0)])
    assert (termination(grammar) == 1.0).all()
    assert_agrees_with_inside_outside(grammar, [["x"] * 8])


def test_a_grammar_of_rules_that_were_cut_is_read_given_that_trees_end():
    grammar = PCFG.from_rules({"S": 0.9}, [("S", "A", "A", 0.5), ("S", "S", "A", 0.2)],
                              [("A", "x", 0.5), ("A", "y", 0.25)], is_proper=False)
    # z(S) = 0.5 z(A)^2 + 0.2 z(S) z(A), z(A) = 0.75
    ends = 0.5 * 0.75 ** 2 / (1 - 0.2 * 0.75)
    np.testing.assert_allclose(termination(grammar), [ends, 0.75])
    assert prefix_grammar(grammar).log_total == pytest.approx(np.log(0.9 * ends))
    assert_agrees_with_inside_outside(grammar, [["x", "y"], ["y", "x", "x"]])


@pytest.mark.parametrize("rules", [
    [("S", "S", "A", 1.0)],
    [("S", "A", "A", 0.5), ("S", "T", "A", 0.5), ("T", "S", "A", 0.0), ("T", "U", "A", 1.0), ("U", "T", "A", 1.0)],
])
def test_a_grammar_without_a_left_corner_closure_is_refused(rules):
    grammar = PCFG.from_rules({"S": 1.0}, rules, [("A", "x", 1.0)])
    with pytest.raises(GrammarError, match="spectral radius 1.000000, expected below 1.*never comes to its first word"):
        next_words(grammar, ["x"])


def test_a_grammar_without_a_finite_tree_is_refused():
    grammar = PCFG.from_rules({"S": 1.0}, [("S", "A", "S", 1.0)], [("A", "x", 1.0)])
    with pytest.raises(GrammarError, match="no tree of the grammar is finite"):
        Prefix(grammar)


# ---- edges -----------------------------------------------------------------------------------------------------------


def test_a_grammar_of_single_words_ends_after_one():
    grammar = PCFG.from_rules({"A": 0.25, "B": 0.75}, [], [("A", "x", 1.0), ("B", "x", 0.5), ("B", "y", 0.5)])
    found = next_words(grammar, ["x"])
    np.testing.assert_allclose(found.next_word, [[0.625, 0.375, 0.0], [0.0, 0.0, 1.0]])
    assert found.n_open.tolist() == [0.0, 0.0]
    assert_agrees_with_inside_outside(grammar, [["x"], ["y"], ["x", "y"]])


def test_prefixes_without_probability_give_zeros_and_say_where(tiny_grammar):
    for log in SPACES:
        prefix = Prefix(tiny_grammar)
        prefix._begin(1, log)
        for word in ["she", "nowhere", "fish"]:
            prefix.extend(word)
        assert prefix.impossible_at == 1
        assert prefix.log_prob == -np.inf
        assert not prefix.next_word.any()
        assert not prefix.ending_spans().any()
        assert not prefix.posteriors().labelled.any()
        assert prefix.posteriors(1).spans[0, 1] == pytest.approx(1.0)
    found = next_words(tiny_grammar, ["she", "eats"])
    assert found.impossible_at is None
    assert found.log_prob == -np.inf  # a beginning, but no sentence
    assert not Prefix(tiny_grammar).extend("she").extend("eats").posteriors(has_ended=True).labelled.any()


def test_an_empty_sentence_has_a_first_word_and_no_probability(tiny_grammar):
    found = next_words(tiny_grammar, [])
    np.testing.assert_allclose(found.next_word, [[0.5, 0.5, 0.0, 0.0]])
    assert found.log_prob == -np.inf
    assert Prefix(tiny_grammar).posteriors().spans.shape == (1, 1)


def test_a_word_id_of_another_grammar_is_refused(tiny_grammar):
    with pytest.raises(UsageError, match="word id 17 is outside"):
        Prefix(tiny_grammar).extend(17)


def test_a_short_sentence_does_not_ask_how_much_memory_is_free(tiny_grammar, monkeypatch):
    def ask():
        raise AssertionError("the question takes longer than the sentence")

    monkeypatch.setattr("pcfg_artifact.parsing.prefix.left_to_right.available_memory", ask)
    assert next_words(tiny_grammar, ["she", "eats", "fish"]).impossible_at is None


# ---- what may come next, and what a word tells of the tree -----------------------------------------------------------


@pytest.mark.parametrize("log", SPACES)
def test_beliefs_are_the_expected_numbers_of_symbols_that_begin_next(finite_trees, log):
    for ids in sorted({tree[0] for tree in finite_trees})[::9]:
        prefix = Prefix(FINITE)
        prefix._begin(4, log)
        prefix._read(np.array(ids))
        found = prefix.beliefs()
        for t in range(len(ids) + 1):
            trees = [tree for tree in finite_trees if tree[0][:t] == ids[:t]]
            total = sum(weight for _, weight, _ in trees)
            expected = np.zeros(FINITE.n_nonterminals)
            for _, weight, nodes in trees:
                for a, i, _ in nodes:
                    expected[a] += weight / total * (i == t)
            np.testing.assert_allclose(found[t], expected, rtol=TIGHT, atol=1e-15)
    after_impossible = read(FINITE, [0, 2, 2, 2], log)[-1]
    assert after_impossible.beliefs().shape == (5, FINITE.n_nonterminals)
    assert not after_impossible.beliefs()[after_impossible.impossible_at + 1:].any()


def test_surprisal_is_the_change_of_tree_belief_and_the_choice_of_the_word(finite_trees):
    """The relative entropy of the beliefs over whole trees down to pre-terminals, tree by tree."""
    def belief(ids):
        """Tree without words -> its probability given that the sentence begins so, and the tag of the next word."""
        found, total = {}, 0.0
        for sentence, weight, nodes in finite_trees:
            if sentence[:len(ids)] == ids:
                found[frozenset(nodes)] = found.get(frozenset(nodes), 0.0) + weight
                total += weight
        return {tree: weight / total for tree, weight in found.items()}

    emission = {(a, w): p for (a, w), p in zip(FINITE.lexical.tolist(), FINITE.lexical_prob, strict=True)}
    n_checked = 0
    for ids in sorted({tree[0] for tree in finite_trees}):
        found = next_words(FINITE, np.array(ids))
        for t, w in enumerate(ids):
            before, after = belief(ids[:t]), belief(ids[:t + 1])
            update = sum(p * np.log(p / before[tree]) for tree, p in after.items() if p > 0)
            choice = -sum(p * np.log(next(emission[a, w] for a, i, j in tree if (i, j) == (t, t + 1)))
                          for tree, p in after.items() if p > 0)
            assert found.tree_update[t] == pytest.approx(update, abs=1e-10)
            assert found.word_choice[t] == pytest.approx(choice, abs=1e-10)
            assert update + choice == pytest.approx(-found.log_probs[t], abs=1e-10)
            n_checked += 1
        if found.log_prob > -np.inf:  # the end is a fact of the tree: those that go on are given up
            before = belief(ids)
            ended = {tree: p for tree, p in before.items() if max(j for _, _, j in tree) == len(ids)}
            assert found.tree_update[-1] == pytest.approx(-np.log(sum(ended.values())), abs=1e-10)
            assert found.word_choice[-1] == 0.0
    assert n_checked > 100


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_surprisal_add_up_in_random_grammars_and_in_log_space(random_grammar, seed):
    grammar = ending_grammar(random_grammar, seed)
    words = np.random.default_rng(seed).integers(grammar.n_words, size=40)
    found = next_words(grammar, words)
    possible = found.log_probs > -np.inf
    np.testing.assert_allclose((found.tree_update + found.word_choice)[possible], -found.log_probs[possible],
                               atol=1e-10)
    assert np.isnan(found.tree_update[~possible]).all()
    assert np.isnan(found.word_choice[~possible]).all()


HMM = """
ROOT -> 1 0.5
ROOT -> 2 0.25
ROOT -> 3 0.25
1 -> E1 1 0.3
1 -> E1 2 0.4
1 -> E1 0.3
2 -> E2 3 0.75
2 -> E2 1 0.25
3 -> E3 3 0.5
3 -> E3 0.5
E1 -> '1' 0.9
E1 -> '2' 0.1
E2 -> '2' 1.0
E3 -> '1' 0.2
E3 -> '3' 0.8
"""


@pytest.mark.parametrize("sentence", ["1 2 1 2 3 1", "2 3 3 1", "1", "1 1 1 1 1 1 1 1 1 1 1 1"])
def test_a_hidden_markov_model_as_a_right_linear_grammar_gives_the_numbers_of_the_forward_algorithm(sentence):
    step = np.array([[0.3, 0.4, 0.0], [0.25, 0.0, 0.75], [0.0, 0.0, 0.5]])
    stop, emits = np.array([0.3, 0.0, 0.5]), np.array([[0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [0.2, 0.0, 0.8]])
    grammar = from_text(HMM)
    words = sentence.split()
    found, prefix = next_words(grammar, words), Prefix(grammar)
    belief, end = np.array([0.5, 0.25, 0.25]), 0.0  # over the state of the next word, and that there is none
    for t, word in enumerate([*words, None]):
        np.testing.assert_allclose(found.next_word[t, [grammar.word_index[w] for w in "123"]], belief @ emits,
                                   atol=1e-12)
        assert found.next_word[t, -1] == pytest.approx(end, abs=1e-12)
        # A state that may be the last one is two symbols of the normal form: one with a state after it, one without.
        by_state = [sum(prefix.beliefs()[t, a] for a, name in enumerate(grammar.nonterminals)
                        if name.split(":")[0] == state and (name != f"E{state}")) for state in "123"]
        np.testing.assert_allclose(by_state, belief, atol=1e-12)
        if word is not None:
            joint = belief * emits[:, "123".index(word)]
            assert found.log_probs[t] == pytest.approx(np.log(joint.sum()), abs=1e-12)
            belief, end = joint / joint.sum() @ step, joint / joint.sum() @ stop
            prefix.extend(word)
