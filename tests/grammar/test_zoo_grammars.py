"""The zoo: next words, masked words and entropy of each grammar against another computation; names and hashes."""

import math

import numpy as np
import pytest

from pcfg_artifact.errors import GrammarError, UsageError
from pcfg_artifact.grammar.expectation import derivation_entropy
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.grammar.sources import read_grammar
from pcfg_artifact.grammar.written import Word
from pcfg_artifact.grammar.zoo_grammars import KINDS, cfg3, frozen_hash, random_hierarchy, zoo
from pcfg_artifact.parsing.floors import floors
from pcfg_artifact.parsing.masking import masked_word_distribution
from pcfg_artifact.parsing.prefix.left_to_right import next_words
from pcfg_artifact.tools.zoo import measured, stored

CLOSE = 1e-12  # of two exact computations of a probability


# ---- cfg3 -----------------------------------------------------------------------------------------------------------


def prefix_and_sentence(written, words):
    """Probability that a sentence begins with the words, and that it is these words.

    Symbols of one level only lead to the next, so inside probabilities of all spans are products of matrices, from the
    words up: inside[A][i, j] that A yields words i .. j-1; onwards[A][i] that A yields words i .. n-1 and perhaps more.
    """
    n = len(words)
    inside, onwards = {}, {}
    for word in {item for rule in written.productions for item in rule.items if isinstance(item, Word)}:
        inside[word] = np.diag([float(word.text == w) for w in words], 1)
        onwards[word] = inside[word][:, n].copy()
    heads = list(dict.fromkeys(rule.head for rule in written.productions))
    for head in reversed(heads):
        inside[head], onwards[head] = np.zeros((n + 1, n + 1)), np.zeros(n + 1)
        for _, items, p in (rule for rule in written.productions if rule.head == head):
            reached = np.eye(n + 1)  # [i, j]: the items so far yield words i .. j-1, and words are left
            for item in items:
                onwards[head] += p * reached[:, :n] @ onwards[item][:n]
                whole = reached @ inside[item]
                reached = whole.copy()
                reached[:, n] = 0.0
            inside[head] += p * whole
    root, = written.root
    return onwards[root][0], inside[root][0, n]


@pytest.mark.parametrize(("name", "lengths"), [("b", (0, 1, 7, 60, 150)), ("f", (2, 40)), ("i", (5, 33)),
                                               ("k", (3, 90)), ("e2", (4, 25))])
def test_next_words_of_cfg3_equal_another_dynamic_programme(name, lengths):
    grammar, written = zoo(f"cfg3{name}"), cfg3(name)
    ids = np.asarray(sample_trees(grammar, 1, seed=3).tokens.row(0), np.int64)
    words = [grammar.words[w] for w in ids]
    found = next_words(grammar, ids[:max(lengths)]).next_word
    for length in lengths:
        before = prefix_and_sentence(written, words[:length])[0] if length else 1.0
        expected = [prefix_and_sentence(written, [*words[:length], word])[0] / before for word in grammar.words]
        assert np.abs(found[length, :-1] - expected).max() <= CLOSE


def test_the_end_of_a_cfg3_sentence_has_the_probability_that_the_other_programme_says():
    grammar, written = zoo("cfg3b"), cfg3("b")
    ids = np.asarray(sample_trees(grammar, 1, seed=1).tokens.row(0), np.int64)
    begins, ends = prefix_and_sentence(written, [grammar.words[w] for w in ids])
    assert next_words(grammar, ids).next_word[-1, -1] == pytest.approx(ends / begins, abs=CLOSE)


# ---- random hierarchies ---------------------------------------------------------------------------------------------


def belief_propagation(written, seen, depth, branching):
    """(L, n_words) posterior of every word of a fixed tree; seen: a word, or None where it is masked."""
    levels = [sorted({r.head for r in written.productions if r.head.startswith(f"L{d}.")},
                     key=lambda name: int(name.split(".")[1])) for d in range(1, depth + 1)]
    words = sorted({item.text for r in written.productions for item in r.items if isinstance(item, Word)}, key=int)
    names = [*levels, [Word(w) for w in words]]
    index = [{name: n for n, name in enumerate(level)} for level in names]
    tensors = []
    for d in range(depth):
        tensor = np.zeros((len(names[d]), *[len(names[d + 1])] * branching))
        for rule in written.productions:
            if rule.head in index[d]:
                tensor[(index[d][rule.head], *(index[d + 1][item] for item in rule.items))] += rule.prob
        tensors.append(tensor)
    up = [None] * depth + [[np.ones(len(words)) if word is None else np.eye(len(words))[words.index(word)]
                            for word in seen]]
    for d in reversed(range(depth)):
        up[d] = [np.einsum("abc,b,c->a", tensors[d], up[d + 1][2 * n], up[d + 1][2 * n + 1])
                 for n in range(branching ** d)]
    down = [[np.array([written.root[name] for name in names[0]])]]
    for d in range(depth):
        below = []
        for n, message in enumerate(down[d]):
            left, right = up[d + 1][2 * n], up[d + 1][2 * n + 1]
            below += [np.einsum("abc,a,c->b", tensors[d], message, right),
                      np.einsum("abc,a,b->c", tensors[d], message, left)]
        down.append(below)
    posterior = np.array(down[depth]) * np.array(up[depth])
    return posterior / posterior.sum(axis=1, keepdims=True), words


@pytest.mark.parametrize("seed", range(4))
def test_masked_words_of_a_random_hierarchy_equal_belief_propagation_on_its_tree(seed):
    written, grammar = random_hierarchy(seed=seed), zoo("rhm", seed=seed)
    rng = np.random.default_rng(seed)
    for tree in sample_trees(grammar, 6, seed):
        words = tree.words()
        masked = sorted(rng.choice(8, int(rng.integers(1, 8)), replace=False).tolist())
        seen = [None if t in masked else word for t, word in enumerate(words)]
        expected, names = belief_propagation(written, seen, 3, 2)
        found = masked_word_distribution(grammar, words, masked)
        order = [names.index(word) for word in grammar.words]
        assert np.abs(found - expected[masked][:, order]).max() <= CLOSE


def test_a_random_hierarchy_has_distinct_rules_one_tree_and_one_length_and_a_varying_one_has_several():
    for name, lengths in (("rhm", {8}), ("rhm-varying", None)):
        grammar = zoo(name)
        sides = [rule.items for rule in grammar.written.productions]
        assert len(set(sides)) == len(sides)
        drawn = sample_trees(grammar, 200).tokens.lengths
        assert set(drawn) == lengths if lengths else len(set(drawn)) > 5


# ---- closed forms ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"k": 3, "m": 2, "more": 0.3, "leaf": 0.7}, {"k": 1, "m": 1}])
def test_next_words_of_bounded_dyck_have_their_closed_form(parameters):
    grammar = zoo("dyck", **parameters)
    k, m, more, leaf = ({"k": 2, "m": 4, "more": 0.5, "leaf": 0.4} | parameters).values()
    for tree in sample_trees(grammar, 25, seed=5):
        ids = grammar.encode(tree.words()[:60])
        found, stack = next_words(grammar, ids).next_word, []
        for t, word in enumerate([None, *tree.words()[:60]]):
            expected = dict.fromkeys([*grammar.words, "end"], 0.0)
            opens = [f"<{kind}" for kind in range(1, k + 1)]
            if word is not None and word.startswith("<"):
                stack.append(word)
                share = 1.0 if len(stack) == m else leaf
                expected[f"{word[1:]}>"] = share
                if len(stack) < m:
                    expected.update(dict.fromkeys(opens, (1 - leaf) / k))
            elif word is not None:
                stack.pop()
                expected.update(dict.fromkeys(opens, more / k))
                expected[f"{stack[-1][1:]}>" if stack else "end"] = 1 - more
            else:
                expected.update(dict.fromkeys(opens, 1 / k))
            assert np.abs(found[t] - list(expected.values())).max() <= CLOSE


def test_next_words_of_arithmetic_have_their_closed_form():
    plus, times, nested, digits = 0.3, 0.3, 0.25, 2
    grammar = zoo("arithmetic")
    for tree in sample_trees(grammar, 60, seed=2):
        words = tree.words()[:50]
        found, depth = next_words(grammar, grammar.encode(words)).next_word, 0
        for t, word in enumerate([None, *words]):
            depth += (word == "(") - (word == ")")
            expected = dict.fromkeys([*grammar.words, "end"], 0.0)
            if word is None or word in "(+*":
                expected |= {"(": nested, "0": (1 - nested) / digits, "1": (1 - nested) / digits}
            else:
                expected |= {"*": times, "+": (1 - times) * plus,
                             ")" if depth else "end": (1 - times) * (1 - plus)}
            assert np.abs(found[t] - list(expected.values())).max() <= CLOSE


def test_next_words_of_ambiguous_arithmetic_have_their_closed_form():
    """Trees without precedence: n operands between brackets have Catalan(n - 1) trees, each q^(n - 1) (1 - q)^n."""
    plus, times, nested, digits = 0.2, 0.15, 0.15, 2
    q, n_ambiguous = plus + times, 0
    exactly = [math.comb(2 * n - 2, n - 1) / n * q ** (n - 1) * (1 - q) ** n for n in range(1, 40)]
    goes_on = [1 - p / (1 - sum(exactly[:n])) for n, p in enumerate(exactly[:20])]  # after n + 1 operands
    grammar = zoo("arithmetic-ambiguous")
    for tree in sample_trees(grammar, 60, seed=2):
        words = tree.words()[:20]
        found, n_operands = next_words(grammar, grammar.encode(words)).next_word, [0]  # in every open bracket
        for t, word in enumerate([None, *words]):
            if word == "(":
                n_operands.append(0)
            elif word == ")":
                n_operands.pop()
            if word is not None and word in "01)":
                n_operands[-1] += 1
            expected = dict.fromkeys([*grammar.words, "end"], 0.0)
            if word is None or word in "(+*":
                digit = (1 - q - nested) / digits / (1 - q)
                expected |= {"(": nested / (1 - q), "0": digit, "1": digit}
            else:
                more = goes_on[n_operands[-1] - 1]
                expected |= {"+": more * plus / q, "*": more * times / q, ")" if n_operands[1:] else "end": 1 - more}
                n_ambiguous += n_operands[-1] > 2
            assert np.abs(found[t] - list(expected.values())).max() <= CLOSE
    assert n_ambiguous > 20


def test_the_second_half_of_a_marked_palindrome_is_certain():
    grammar = zoo("palindromes", marked=True)
    for tree in sample_trees(grammar, 20):
        words = tree.words()
        found = next_words(grammar, words).next_word
        assert np.abs(found[words.index("#") + 1:].max(axis=1) - 1.0).max() <= CLOSE


# ---- entropy --------------------------------------------------------------------------------------------------------


def enumerated_entropy(written, symbol):
    """(entropy in nats of the trees below a symbol, their mean number of words), by listing every tree."""
    def trees(item):
        if isinstance(item, Word):
            yield 1.0, 1
            return
        for rule in written.productions:
            if rule.head == item:
                yield from combined(rule.prob, rule.items)

    def combined(p, items):
        if not items:
            yield p, 0
            return
        for q, length in trees(items[0]):
            for rest, more in combined(p, items[1:]):
                yield q * rest, length + more

    found = np.array(list(trees(symbol)))
    assert math.isclose(found[:, 0].sum(), 1.0)
    return -float(found[:, 0] @ np.log(found[:, 0])), float(found[:, 0] @ found[:, 1])


@pytest.mark.parametrize("seed", range(3))
def test_entropy_of_a_small_hierarchy_equals_enumeration(seed):
    written = random_hierarchy(depth=2, longest=3, symbols=3, rules=2, seed=seed)
    grammar = zoo("rhm-varying", depth=2, symbols=3, rules=2, seed=seed)
    entropies, lengths = zip(*(enumerated_entropy(written, name) for name in written.root), strict=True)
    p = np.array(list(written.root.values()))
    assert derivation_entropy(grammar) == pytest.approx(p @ entropies - p @ np.log(p), rel=1e-12)
    assert floors(grammar, 20)["mean_length"].value == pytest.approx(p @ lengths, rel=1e-12)


def test_the_next_word_floor_is_the_entropy_of_sentences_by_enumeration():
    """S -> S S | a, cut at depth 2: sentences of 1 to 4 words, that of 3 has two trees."""
    rules = "ROOT -> S 1\nS -> T T 0.5\nS -> 'a' 0.5\nT -> U U 0.5\nT -> 'a' 0.5\nU -> 'a' 1\n"
    from pcfg_artifact.grammar.rulefile import from_text

    grammar = from_text(rules)
    by_length = np.array([0.5, 0.5 * 0.25, 0.5 * 0.5, 0.5 * 0.25])  # of 1, 2, 3 and 4 words
    entropy, length = -(by_length @ np.log(by_length)), by_length @ [1, 2, 3, 4]
    found = floors(grammar, 4000)
    assert abs(found["next_word"].value - entropy / (length + 1)) <= 4 * found["next_word"].error
    assert 0 < found["next_word"].error < 0.01
    assert found["ambiguous"].value == pytest.approx(0.25, abs=4 * found["ambiguous"].error)


# ---- names, parameters, stored numbers ------------------------------------------------------------------------------


def test_every_grammar_is_the_one_that_was_measured():
    assert {name: frozen_hash(zoo(name)) for name in KINDS} == {name: card["hash"] for name, card in stored().items()}


@pytest.mark.parametrize("name", ["rhm", "dyck", "palindromes"])
def test_stored_floors_are_what_the_command_measures(name):
    card = stored()[name]
    assert measured(zoo(name), card["sentences"], card["seed"]) == card


def test_a_name_with_parameters_is_the_grammar_with_these_parameters():
    assert frozen_hash(read_grammar("zoo:rhm,depth=2,seed=5")) == frozen_hash(zoo("rhm", depth=2, seed=5))
    assert frozen_hash(read_grammar("zoo:palindromes,marked=true")) == frozen_hash(zoo("palindromes", marked=True))


@pytest.mark.parametrize(("name", "said"), [
    ("zoo:nothing", "no grammar 'nothing'"), ("zoo:rhm,width=3", "no parameter 'width'"),
    ("zoo:rhm,depth=much", "expected int"), ("zoo:rhm,depth", "is no parameter"), ("zoo:dyck,more=1", "less than 1"),
    ("zoo:rhm,symbols=2,rules=9", "different right sides"), ("zoo:subgrammar,only=7", "expected 0"),
    ("zoo:cfg3b,levels=2", "no parameter")])
def test_what_the_zoo_does_not_have_is_refused(name, said):
    with pytest.raises((GrammarError, UsageError), match=said):
        read_grammar(name)
