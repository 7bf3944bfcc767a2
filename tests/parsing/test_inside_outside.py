"""Every engine against enumeration of all trees, and against each other on every cell."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.parsing import reference
from pcfg_artifact.parsing.cpu import CpuEngine
from pcfg_artifact.parsing.decoding import viterbi_trees
from pcfg_artifact.parsing.engine import EngineOptions, inside_outside, leaf_charts, log_probabilities
from pcfg_artifact.parsing.leaves import sentence_leaves

TIGHT = 1e-9  # relative, on every cell; float64 sums of products differ by rounding only


def assert_logs_agree(found: np.ndarray, expected: np.ndarray) -> None:
    """The same impossible entries, and the others within TIGHT of each other (a difference of logs is relative)."""
    assert (np.isneginf(found) == np.isneginf(expected)).all()
    possible = ~np.isneginf(expected)
    np.testing.assert_allclose(found[possible], expected[possible], rtol=0, atol=TIGHT)


def assert_charts_agree(found, expected) -> None:
    assert found.length == expected.length
    assert_logs_agree(np.array([found.log_prob]), np.array([expected.log_prob]))
    assert_logs_agree(found.log_inside, expected.log_inside)
    assert_logs_agree(found.log_outside, expected.log_outside)
    np.testing.assert_allclose(found.marginals, expected.marginals, rtol=TIGHT, atol=1e-300)
    np.testing.assert_allclose(found.span_scores(), expected.marginals.max(axis=-1), rtol=TIGHT, atol=1e-300)


def some_sentences(grammar: PCFG, seed: int) -> list[list[str]]:
    """Lengths 0 to 9, some with a word that no rule yields: padding, retries and zeros in one batch."""
    rng = np.random.default_rng(seed)
    sentences = [[f"w{rng.integers(grammar.n_words)}" for _ in range(n)] for n in (5, 0, 1, 2, 9, 3, 4, 7, 6)]
    return [*sentences, ["nowhere"], ["w0", "nowhere", "w1", "w0"]]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 5), density=st.sampled_from([0.15, 0.4]))
def test_every_engine_equals_enumeration_of_all_trees(
        random_grammar, is_left_out, derivations, all_trees, engine, seed, length, density):
    if is_left_out(engine, seed):
        return
    grammar = random_grammar(seed, 2, 2, 2, density)
    sentence = [f"w{w}" for w in np.random.default_rng(seed).integers(grammar.n_words, size=length)]
    leaves = sentence_leaves(grammar, sentence)
    trees = all_trees(grammar, leaves)
    total = sum(weight for weight, _ in trees)
    chart = inside_outside(grammar, [sentence], backend=engine)[0]
    assert np.exp(chart.log_prob) == pytest.approx(total, rel=TIGHT, abs=0)
    best, tree = next(viterbi_trees(grammar, [sentence], EngineOptions(backend=engine)))
    assert np.exp(best) == pytest.approx(max((weight for weight, _ in trees), default=0.0), rel=TIGHT, abs=0)
    assert (tree is None) == (not trees)
    inside, marginals = np.zeros((2, length + 1, length + 1, grammar.n_nonterminals))
    for i in range(length):
        for j in range(i + 1, length + 1):
            for a in range(grammar.n_nonterminals):
                inside[i, j, a] = sum(weight for weight, _ in derivations(grammar, a, leaves, i, j))
    for weight, nodes in trees:
        for a, i, j in nodes:
            marginals[i, j, a] += weight / total
    assert_logs_agree(chart.log_inside, reference.log_of(inside))
    np.testing.assert_allclose(chart.marginals, marginals, rtol=TIGHT, atol=1e-300)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), density=st.sampled_from([0.1, 0.3, 0.9]),
       outside=st.sampled_from(["pruned", "full"]))
def test_engines_agree_with_the_reference_on_every_cell(random_grammar, is_left_out, engine, seed, density, outside):
    if is_left_out(engine, seed):
        return
    rng = np.random.default_rng(seed)
    grammar = random_grammar(seed, *rng.integers(1, 5, size=3), density)
    sentences = some_sentences(grammar, seed)
    expected = inside_outside(grammar, sentences, backend="reference", outside=outside)
    found = inside_outside(grammar, sentences, backend=engine, outside=outside)
    for chart, twin in zip(found, expected, strict=True):
        assert_charts_agree(chart, twin)
        assert not chart.is_log or engine != "cpu"  # linear space refuses none of these


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), density=st.sampled_from([0.1, 0.3, 0.9]),
       outside=st.sampled_from(["pruned", "full"]))
def test_log_space_agrees_with_the_reference_on_every_cell(random_grammar, seed, density, outside):
    grammar = random_grammar(seed, *np.random.default_rng(seed).integers(1, 5, size=3), density)
    sentences = some_sentences(grammar, seed)
    log_space = CpuEngine(grammar, EngineOptions(outside=outside))
    expected = inside_outside(grammar, sentences, backend="reference", outside=outside)
    for sentence, twin in zip(sentences, expected, strict=True):
        assert_charts_agree(log_space.log_chart(sentence_leaves(grammar, sentence)), twin)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), density=st.sampled_from([0.1, 0.4]))
def test_log_probabilities_and_best_trees_follow_the_engine(random_grammar, is_left_out, engine, seed, density):
    if is_left_out(engine, seed):
        return
    grammar = random_grammar(seed, *np.random.default_rng(seed).integers(1, 5, size=3), density)
    sentences, options = some_sentences(grammar, seed), EngineOptions(backend=engine)
    expected = inside_outside(grammar, sentences, backend="reference")
    found = np.array(list(log_probabilities(grammar, sentences, options)))
    assert_logs_agree(found, np.array([chart.log_prob for chart in expected]))
    twins = list(viterbi_trees(grammar, sentences, EngineOptions(backend="reference")))
    for sentence, (best, tree), (twin, _) in zip(
            sentences, viterbi_trees(grammar, sentences, options), twins, strict=True):
        assert_logs_agree(np.array([best]), np.array([twin]))
        if tree is not None:
            assert tree.words() == sentence
            assert log_probability_of(tree, grammar) == pytest.approx(best, abs=TIGHT)


def log_probability_of(tree, grammar: PCFG) -> float:
    """Product of the rules of a tree and its root, in logs."""
    rules = {tuple(r): p for r, p in zip(grammar.binary.tolist(), grammar.binary_prob, strict=True)}
    words = {tuple(r): p for r, p in zip(grammar.lexical.tolist(), grammar.lexical_prob, strict=True)}
    index = grammar.nonterminal_index
    factors = [grammar.root[index[tree.label]]]
    for node in tree.preorder():
        factors.append(words[index[node.label], grammar.word_index[node.word]] if node.is_preterminal else
                       rules[index[node.label], index[node.children[0].label], index[node.children[1].label]])
    return float(np.log(factors).sum())


def test_the_engine_that_is_named_does_the_work(tiny_grammar, monkeypatch):
    """Chart, log probability and Viterbi all ask the engine of that name, and no other."""
    from pcfg_artifact.parsing.engine import ENGINES

    asked = []

    class Counting:
        def __init__(self, grammar, options):
            self.engine = ENGINES["reference"](grammar, options)

        def __getattr__(self, name):
            asked.append(name)
            return getattr(self.engine, name)

    monkeypatch.setitem(ENGINES, "counting", Counting)
    options, sentences = EngineOptions(backend="counting"), [["she", "eats", "fish"]]
    inside_outside(tiny_grammar, sentences, backend="counting")
    list(log_probabilities(tiny_grammar, sentences, options))
    list(viterbi_trees(tiny_grammar, sentences, options))
    assert asked == ["charts", "log_probs", "best_trees"]


def test_sentences_without_probability_have_zero_marginals_and_no_nan(engine, tiny_grammar):
    sentences = [[], ["she"], ["nowhere"], ["eats", "eats"], ["she", "eats", "fish"]]
    for outside in ("pruned", "full"):
        *empty, possible = inside_outside(tiny_grammar, sentences, backend=engine, outside=outside)
        for chart in empty:
            assert chart.log_prob == -np.inf
            assert not chart.marginals.any()
            assert not np.isnan(chart.log_inside).any()
            assert not np.isnan(chart.log_outside).any()
        assert possible.log_prob == pytest.approx(np.log(0.5 * 0.75 * 0.6 * 0.5))
        assert inside_outside(tiny_grammar, [], backend=engine) == []


def test_two_splits_are_added(engine, tiny_grammar):
    """she fish fish: only V NP fits the verb phrase; she fish eats fish: V VP adds a second verb."""
    chart = inside_outside(tiny_grammar, [["she", "fish", "eats", "fish"]], backend=engine)[0]
    assert chart.log_prob == pytest.approx(np.log(0.5 * (0.25 * 0.4) * (0.75 * 0.6 * 0.5)))


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_outside_is_the_gradient_of_log_probability(random_grammar, is_left_out, engine, seed):
    """d log Z / d log leaf = marginal of the leaf: a third way to the same numbers, by finite differences."""
    if is_left_out(engine, seed):
        return
    grammar = random_grammar(seed, 3, 3, 3)
    leaves = sentence_leaves(grammar, ["w0", "w1", "w2", "w0"])
    options = EngineOptions(backend=engine)
    chart = next(leaf_charts(grammar, [leaves], options))
    assume(chart.log_prob > -np.inf)
    step, places = 1e-6, list(zip(*np.nonzero(leaves), strict=True))
    moved = np.repeat(leaves[None], 2 * len(places), axis=0)
    for n, (t, p) in enumerate(places):
        moved[2 * n:2 * n + 2, t, p] *= np.exp([step, -step])
    sides = [chart.log_prob for chart in leaf_charts(grammar, list(moved), options)]
    for (t, p), up, down in zip(places, sides[::2], sides[1::2], strict=True):
        gradient = (up - down) / (2 * step)
        assert gradient == pytest.approx(chart.marginals[t, t + 1, grammar.n_interminals + p], abs=1e-7)


@pytest.mark.parametrize("length", [63, 64, 65, 66, 130])
def test_masks_of_several_words_agree_with_log_space(random_grammar, quick_engine, length):
    """Splits on either side of a 64-bit word."""
    grammar = random_grammar(3, 3, 3, 3, 1.0)
    sentence = [f"w{w}" for w in np.random.default_rng(length).integers(3, size=length)]
    chart = inside_outside(grammar, [sentence], backend=quick_engine)[0]
    assert chart.log_prob > -np.inf
    assert_charts_agree(chart, CpuEngine(grammar).log_chart(sentence_leaves(grammar, sentence)))
    assert chart.entry_marginals.sum() == pytest.approx(2 * length - 1, rel=TIGHT)


# ---- range of float64 ------------------------------------------------------------------------------------------------

FADING = PCFG.from_rules(  # S over n words has about 0.999^n of the mass, T about 0.001^n
    root={"S": 0.5, "T": 0.5},
    binary=[("S", "S", "X", 0.5), ("S", "X", "X", 0.5), ("T", "T", "Y", 0.5), ("T", "Y", "Y", 0.5)],
    lexical=[("X", "a", 1.0), ("Y", "a", 1e-6), ("Y", "b", 1.0 - 1e-6)])


def test_long_sentences_whose_symbols_differ_by_thousands_of_digits_are_exact(quick_engine):
    """300 words of which only the last tells that every word was a Y: in linear space T is lost long before."""
    sentence = ["a"] * 299 + ["b"]
    chart = inside_outside(FADING, [sentence], backend=quick_engine)[0]
    # one left-branching tree: root 0.5, 299 rules of 0.5, 299 words of 1e-6
    assert chart.log_prob == pytest.approx(np.log(0.5) * 300 + 299 * np.log(1e-6) + np.log1p(-1e-6), rel=1e-12)
    assert chart.entry_marginals.sum() == pytest.approx(599, rel=TIGHT)
    assert chart.is_log


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1e3])
def test_leaves_of_any_size_neither_overflow_nor_underflow(random_grammar, quick_engine, scale):
    grammar = random_grammar(11, 3, 3, 3, 1.0)
    sentence = [f"w{w}" for w in np.random.default_rng(0).integers(3, size=200)]
    leaves = sentence_leaves(grammar, sentence)
    plain, scaled = leaf_charts(grammar, [leaves, scale * leaves], EngineOptions(backend=quick_engine))
    assert plain.log_prob > -np.inf
    assert scaled.log_prob == pytest.approx(plain.log_prob + 200 * np.log(scale), rel=1e-12)
    np.testing.assert_allclose(scaled.span_scores(), plain.span_scores(), rtol=1e-7, atol=1e-300)


def test_a_rule_of_tiny_probability_is_done_in_log_space():
    tiny = 1e-200
    grammar = PCFG.from_rules(
        root={"S": 1.0}, binary=[("S", "S", "P", tiny), ("S", "P", "P", 1.0 - tiny)], lexical=[("P", "a", 1.0)])
    chart = inside_outside(grammar, [["a"] * 6])[0]
    assert chart.is_log
    assert chart.log_prob == pytest.approx(4 * np.log(tiny))


@pytest.mark.slow
def test_sampled_sentences_up_to_300_words_stay_in_linear_space(random_grammar):
    grammar = random_grammar(21, 6, 6, 6, 0.3)
    words = [tree.words() for tree in sample_trees(grammar, 2000, seed=1, max_length=300)]
    longest = sorted(words, key=len)[-3:]
    assert len(longest[0]) > 150
    for chart, sentence in zip(inside_outside(grammar, longest), longest, strict=True):
        assert not chart.is_log
        assert chart.entry_marginals.sum() == pytest.approx(2 * len(sentence) - 1, rel=TIGHT)


# ---- engines as software ---------------------------------------------------------------------------------------------


def test_results_do_not_depend_on_threads_batches_or_company(random_grammar):
    grammar = random_grammar(8, 4, 4, 4)
    sentences = some_sentences(grammar, 8) * 3
    alone = [inside_outside(grammar, [sentence], n_threads=1)[0] for sentence in sentences]
    for n_threads in (1, 3):
        for chart, twin in zip(inside_outside(grammar, sentences, n_threads=n_threads), alone, strict=True):
            np.testing.assert_array_equal(chart.inside, twin.inside)
            np.testing.assert_array_equal(chart.outside, twin.outside)
            assert chart.log_prob == twin.log_prob


def test_words_and_word_ids_are_the_same_sentence(tiny_grammar):
    words = ["she", "eats", "fish"]
    by_word, by_id = inside_outside(tiny_grammar, [words, tiny_grammar.encode(words)])
    assert by_word.log_prob == by_id.log_prob


@pytest.mark.parametrize(("arguments", "message"), [
    ({"backend": "torch"}, "backend 'torch' is unknown; expected one of auto, reference, cpu, gpu"),
    ({"outside": "half"}, "outside 'half' is unknown; expected pruned or full"),
    ({"backend": "gpu", "dtype": "float16"}, "dtype 'float16' is unknown; expected auto or float64 or float32"),
])
def test_unknown_choices_are_refused(tiny_grammar, arguments, message):
    with pytest.raises(UsageError, match=message):
        inside_outside(tiny_grammar, [["she"]], **arguments)


def test_a_string_or_a_foreign_id_is_no_sentence(tiny_grammar):
    with pytest.raises(UsageError, match="must be a list of words"):
        inside_outside(tiny_grammar, ["she eats fish"])
    with pytest.raises(UsageError, match="encoded with another grammar"):
        inside_outside(tiny_grammar, [np.array([99])])


def test_a_chart_that_cannot_fit_is_refused(tiny_grammar, monkeypatch):
    from pcfg_artifact.parsing import cpu

    monkeypatch.setattr(cpu, "available_memory", lambda: 1000)
    with pytest.raises(UsageError, match="a sentence of 2,000 words may need"):
        inside_outside(tiny_grammar, [["she"] * 2000])


def test_two_thousand_words_of_a_small_grammar_are_parsed():
    grammar = PCFG.from_rules(root={"S": 1.0}, binary=[("S", "S", "P", 0.5), ("S", "P", "P", 0.5)],
                              lexical=[("P", "a", 1.0)])
    chart = inside_outside(grammar, [["a"] * 2000])[0]
    assert chart.log_prob == pytest.approx(1999 * np.log(0.5))


# ---- a real grammar --------------------------------------------------------------------------------------------------


@pytest.mark.craft
def test_100_sentences_of_craft_agree_with_log_space_and_with_themselves(craft_grammar, craft_treebank):
    """Every entry against log space, of some; the sum of alpha beta at every word is Z."""
    from pcfg_artifact.treebank.splits import split

    sentences = [tree.words() for tree in split(craft_treebank).test if len(tree.words()) <= 25][:100]
    log_space = CpuEngine(craft_grammar)
    for n, (sentence, chart) in enumerate(zip(sentences, inside_outside(craft_grammar, sentences), strict=True)):
        if chart.log_prob == -np.inf:
            continue
        starts, ends = chart.entry_bounds
        at_words = np.bincount(starts[ends - starts == 1], chart.entry_marginals[ends - starts == 1])
        np.testing.assert_allclose(at_words, 1.0, rtol=TIGHT)
        assert chart.entry_marginals.sum() == pytest.approx(2 * len(sentence) - 1, rel=TIGHT)
        if n % 10 == 0:
            assert_charts_agree(chart, log_space.log_chart(sentence_leaves(craft_grammar, sentence)))


@pytest.mark.craft
def test_full_outside_agrees_with_log_space_on_craft(craft_grammar, craft_treebank):
    from pcfg_artifact.treebank.splits import split

    sentences = [tree.words() for tree in split(craft_treebank).test if len(tree.words()) <= 12][:10]
    engine = CpuEngine(craft_grammar, EngineOptions(outside="full"))
    for sentence in sentences:
        leaves = sentence_leaves(craft_grammar, sentence)
        assert_charts_agree(engine.chart(leaves), engine.log_chart(leaves))
