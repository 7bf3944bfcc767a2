"""Grammars of NLTK in our normal form: sentence probabilities, best trees and sampled counts are those of NLTK."""

import math
from itertools import product

import nltk
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.parse.pchart import InsideChartParser

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.nltk_grammars import nltk_tree
from pcfg_artifact.grammar.normal_form import normal_form
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.rulefile import from_text
from pcfg_artifact.grammar.written import Production, Word, WrittenGrammar
from pcfg_artifact.parsing.decoding import viterbi
from pcfg_artifact.parsing.engine import inside_outside

# The two demonstration grammars of nltk.grammar and nltk.parse, as those modules define them inside their demos.
TOY_1 = """
S -> NP VP [1.0]
NP -> Det N [0.5] | NP PP [0.25] | 'John' [0.1] | 'I' [0.15]
Det -> 'the' [0.8] | 'my' [0.2]
N -> 'man' [0.5] | 'telescope' [0.5]
VP -> VP PP [0.1] | V NP [0.7] | V [0.2]
V -> 'ate' [0.35] | 'saw' [0.65]
PP -> P NP [1.0]
P -> 'with' [0.61] | 'under' [0.39]
"""
TOY_2 = """
S -> NP VP [1.0]
VP -> V NP [.59] | V [.40] | VP PP [.01]
NP -> Det N [.41] | Name [.28] | NP PP [.31]
PP -> P NP [1.0]
V -> 'saw' [.21] | 'ate' [.51] | 'ran' [.28]
N -> 'boy' [.11] | 'cookie' [.12] | 'table' [.13] | 'telescope' [.14] | 'hill' [.5]
Name -> 'Jack' [.52] | 'Bob' [.48]
P -> 'with' [.61] | 'under' [.39]
Det -> 'the' [.41] | 'a' [.31] | 'my' [.28]
"""
# Longer rules, words between symbols, a chain of unary rules, and two cycles of them (A over B over A, A over A).
MIXED = """
S -> NP VP [0.6] | NP 'never' VP PP [0.2] | VP [0.2]
VP -> V NP 'up' [0.3] | V [0.3] | V NP PP PP [0.1] | VP [0.2] | S [0.1]
NP -> Name [0.7] | 'the' N [0.3]
Name -> 'Jack' [0.5] | N [0.5]
N -> 'hill' [0.5] | 'boy' [0.3] | Name [0.2]
V -> 'saw' [1.0]
PP -> 'with' NP [0.5] | 'under' 'the' N [0.5]
"""
DEMOS = [
    (TOY_1, "I saw the man with my telescope"),
    (TOY_1, "John saw I with my telescope under the man"),
    (TOY_1, "I ate"),
    (TOY_2, "the boy saw Jack with Bob under the table with a telescope"),
    (TOY_2, "Jack ran"),
]
CYCLES = ["Jack saw", "saw", "Jack never saw the hill up with the boy", "saw Jack with hill under the boy"]


def fixed_point_probability(written: WrittenGrammar, words: list[str]) -> float:
    """The sum over all trees by the definition: values of every span, repeated until unary rules add nothing."""
    value: dict[tuple[str, int, int], float] = {}

    def yields(items, i, j):
        first, *rest = items
        if not rest:
            return float(words[i:j] == [first.text]) if isinstance(first, Word) else value.get((first, i, j), 0.0)
        return sum(yields([first], i, k) * yields(rest, k, j) for k in range(i + 1, j))

    for width in range(1, len(words) + 1):
        for i in range(len(words) - width + 1):
            for _ in range(2000):
                before = [value.get((p.head, i, i + width), 0.0) for p in written.productions]
                for head in {p.head for p in written.productions}:
                    value[head, i, i + width] = sum(p.prob * yields(p.items, i, i + width)
                                                    for p in written.productions if p.head == head)
                if before == [value[p.head, i, i + width] for p in written.productions]:
                    break
    return sum(p * value[name, 0, len(words)] for name, p in written.root.items())


def log_prob(grammar: PCFG, words: list[str]) -> float:
    return inside_outside(grammar, [words])[0].log_prob


@pytest.mark.parametrize(("rules", "sentence"), DEMOS)
def test_sentence_probabilities_of_the_demo_grammars_are_the_sum_over_nltks_own_trees(rules, sentence):
    theirs, words = nltk.PCFG.fromstring(rules), sentence.split()
    total = sum(tree.prob() for tree in InsideChartParser(theirs).parse(words))
    assert total > 0
    np.testing.assert_allclose(np.exp(log_prob(PCFG.from_nltk(theirs), words)), total, rtol=1e-12)


@pytest.mark.parametrize(("rules", "sentence"), DEMOS + [(MIXED, sentence) for sentence in CYCLES])
def test_the_best_tree_comes_back_in_the_original_grammar_with_nltks_probability(rules, sentence):
    theirs, words = nltk.PCFG.fromstring(rules), sentence.split()
    form = normal_form(PCFG.from_nltk(theirs).written)
    best, tree = viterbi(form.best, words)
    ours = nltk_tree(form.restored(tree))
    expected = next(nltk.ViterbiParser(theirs).parse(words))
    assert ours.leaves() == words
    np.testing.assert_allclose(best, expected.logprob() * math.log(2), rtol=1e-12)
    prob = {(rule.lhs(), rule.rhs()): rule.prob() for rule in theirs.productions()}
    log_probs = [math.log(prob[rule.lhs(), rule.rhs()]) for rule in ours.productions()]  # a KeyError: no rule of theirs
    np.testing.assert_allclose(sum(log_probs), best, rtol=1e-12)


@pytest.mark.parametrize("sentence", CYCLES)
def test_unary_cycles_are_summed_to_the_end(sentence):
    grammar = PCFG.from_nltk(nltk.PCFG.fromstring(MIXED))
    expected = fixed_point_probability(grammar.written, sentence.split())
    assert expected > 0
    np.testing.assert_allclose(np.exp(log_prob(grammar, sentence.split())), expected, rtol=1e-10)


def test_a_cycle_of_its_own_is_a_geometric_series():
    # S -> S 0.5 | 'x' 0.5: 1/2 + 1/4 + ... = 1
    grammar = PCFG.from_nltk(nltk.PCFG.fromstring("S -> S [0.5] | 'x' [0.5]"))
    assert log_prob(grammar, ["x"]) == pytest.approx(0.0, abs=1e-15)


def test_the_probabilities_of_all_short_sentences_of_a_finite_grammar_sum_to_one():
    grammar = PCFG.from_nltk(nltk.PCFG.fromstring(
        "S -> A 'b' A [0.5] | A [0.25] | S [0.25]\nA -> 'a' [0.5] | B [0.5]\nB -> 'a' 'b' [0.5] | 'b' [0.4] | A [0.1]"))
    sentences = [list(s) for n in range(1, 6) for s in product("ab", repeat=n)]
    total = sum(np.exp(chart.log_prob) for chart in inside_outside(grammar, sentences))
    assert total == pytest.approx(1.0, abs=1e-12)


WORDS, SYMBOLS = ["a", "b"], ["S", "A", "B"]


@st.composite
def written_grammars(draw):
    """Any rules over three symbols and two words, each symbol with at least one rule that ends; some rules have 0."""
    items = st.sampled_from(SYMBOLS) | st.sampled_from([Word(w) for w in WORDS])
    productions = []
    for head in SYMBOLS:
        rights = draw(st.lists(st.lists(items, min_size=1, max_size=4).map(tuple), max_size=4, unique=True))
        rights = list(dict.fromkeys([(Word(draw(st.sampled_from(WORDS))),), *rights]))
        weights = np.array([draw(st.sampled_from([1, 1, 2, 5]))] + [draw(st.sampled_from([0, 1, 1, 3]))
                                                                   for _ in rights[1:]], float)
        productions += [Production(head, right, p) for right, p in zip(rights, weights / weights.sum(), strict=True)]
    return WrittenGrammar.of({"S": 1.0}, productions)


@settings(max_examples=60, deadline=None)
@given(written_grammars(), st.lists(st.sampled_from(WORDS), min_size=1, max_size=4))
def test_any_grammar_keeps_its_sentence_probabilities_and_its_best_trees(written, words):
    form = normal_form(written)
    expected = fixed_point_probability(written, words)
    found = np.exp(log_prob(form.grammar, words))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-300)
    best, tree = viterbi(form.best, words)
    assert (tree is None) == (expected == 0)
    if tree is not None:
        restored = form.restored(tree)
        assert restored.words() == words
        prob = {(p.head, p.items): p.prob for p in written.productions}
        total = sum(math.log(prob[node.label, items_of(node)]) for node in restored.preorder() if node.label)
        np.testing.assert_allclose(total, best, rtol=1e-9, atol=1e-12)
        assert best <= np.log(expected) + 1e-9


def items_of(node):
    if node.word is not None:
        return (Word(node.word),)
    return tuple(child.label or Word(child.word) for child in node.children)


# ---- both ways -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", [{"S": 1.0}, {"S": 0.75, "A": 0.25}])
def test_our_grammar_to_nltk_and_back_is_the_same_grammar(root):
    ours = PCFG.from_rules(root, [("S", "A", "S", 0.3), ("S", "A", "ROOT", 0.7)],
                           [("A", "a", 0.25), ("A", "b", 0.75), ("ROOT", "b", 1.0)])
    again = PCFG.from_nltk(ours.to_nltk())
    assert set(again.nonterminals) == set(ours.nonterminals)
    for rules in ("binary", "lexical"):
        assert named_rules(again, rules) == named_rules(ours, rules)
    assert {a: p for a, p in zip(again.nonterminals, again.root, strict=True) if p} == root


def named_rules(grammar, kind):
    names = grammar.nonterminals
    if kind == "binary":
        return {(names[a], names[b], names[c]): p
                for (a, b, c), p in zip(grammar.binary, grammar.binary_prob, strict=True)}
    return {(names[a], grammar.words[w]): p for (a, w), p in zip(grammar.lexical, grammar.lexical_prob, strict=True)}


@pytest.mark.parametrize("rules", [TOY_1, TOY_2, MIXED])
def test_a_grammar_of_nltk_goes_back_as_it_came_from_memory_and_from_disk(rules, tmp_path):
    theirs = nltk.PCFG.fromstring(rules)
    grammar = PCFG.from_nltk(theirs)
    grammar.save(tmp_path / "g")
    for ours in (grammar, PCFG.load(tmp_path / "g")):
        back = ours.to_nltk()
        assert back.start() == theirs.start()
        assert sorted(map(str, back.productions())) == sorted(map(str, theirs.productions()))


def test_a_rule_file_takes_the_same_rules():
    theirs = nltk.PCFG.fromstring(MIXED)
    lines = ["ROOT -> S 1.0"]
    for rule in theirs.productions():
        items = [f"'{x}'" if isinstance(x, str) else x.symbol() for x in rule.rhs()]
        lines.append(" ".join([rule.lhs().symbol(), "->", *items, repr(rule.prob())]))
    ours = from_text("\n".join(lines))
    for sentence in CYCLES:
        assert log_prob(ours, sentence.split()) == log_prob(PCFG.from_nltk(theirs), sentence.split())


@pytest.mark.parametrize(("rules", "message"), [
    ("S -> S [1.0]", "the unary rules of 'S' lead to no word"),
    ("S -> A 'x' [1.0]\nA -> B [1.0]\nB -> A [1.0]", "the unary rules of 'A' lead to no word"),
    ("S -> A 'x' [1.0]", "'A' in the rule `S -> A 'x'` heads no rule"),
    ("S -> 'x' [0.505] | 'y' [0.5]", "the rules of 'S' sum to 1.005"),
    ("S -> A A [1.0]\nA -> [1.0]", "yields the empty sentence alone"),
])
def test_what_cannot_be_brought_to_normal_form_is_refused(rules, message):
    theirs = nltk.PCFG.fromstring(rules)
    with pytest.raises(GrammarError) as error:
        PCFG.from_nltk(theirs)
    assert message in str(error.value)


def test_a_grammar_that_sums_to_less_than_one_keeps_its_probabilities():
    theirs = nltk.PCFG.fromstring("S -> A S [0.495] | A [0.5]\nA -> 'x' [0.996]")
    grammar = PCFG.from_nltk(theirs)
    assert not grammar.is_proper
    for n in (1, 2, 5):
        total = sum(tree.prob() for tree in InsideChartParser(theirs).parse(["x"] * n))
        np.testing.assert_allclose(np.exp(log_prob(grammar, ["x"] * n)), total, rtol=1e-12)
