"""At the paper's sizes: the 1,274-dimensional models, 1,600 non-terminals, float32, and CRAFT."""

import numpy as np
import pytest
import torch

from pcfg_artifact.constructions.agreement import algorithm_charts, entry_errors, linear, recursion_charts, span_errors
from pcfg_artifact.constructions.approximate_relative import ApproximateInsideOutside
from pcfg_artifact.constructions.dense import DenseLayer
from pcfg_artifact.constructions.hard import HardAttentionInsideOutside
from pcfg_artifact.constructions.relative import RelativeInsideOutside
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.treebank.splits import split

L = 25


def sparse_grammar(n_interminals, n_preterminals, n_words, rules_each, seed=0, word_share=0.62):
    """Random rules whose children are mostly pre-terminals, so that trees end; counts make in-terminal 0 the commonest.

    Every pre-terminal occurs under the first 20 in-terminals (268 pre-terminals: the paper's number).
    """
    rng = np.random.default_rng(seed)
    n = n_interminals + n_preterminals
    rules = []
    for a in range(n_interminals):
        children = np.where(rng.random((rules_each, 2)) < word_share, rng.integers(n_interminals, n, (rules_each, 2)),
                            rng.integers(0, n_interminals, (rules_each, 2)))
        rules += [(a, *pair) for pair in children]
    rules += [(p % 20, n_interminals + p, n_interminals + (p + 1) % n_preterminals) for p in range(n_preterminals)]
    rules = np.unique(np.array(rules, np.int32), axis=0)
    prob = rng.random(len(rules))
    prob /= np.bincount(rules[:, 0], prob, minlength=n_interminals)[rules[:, 0]]
    lexical = np.unique(np.array([(n_interminals + p, w) for p in range(n_preterminals)
                                  for w in rng.integers(0, n_words, 30)], np.int32), axis=0)
    lexical_prob = rng.random(len(lexical))
    lexical_prob /= np.bincount(lexical[:, 0], lexical_prob, minlength=n)[lexical[:, 0]]
    root = np.zeros(n)
    root[:n_interminals] = rng.dirichlet(np.ones(n_interminals))
    used = np.unique(np.concatenate([lexical[:, 1], np.arange(n_words)]))
    return PCFG(tuple(f"I{a}" for a in range(n_interminals)), tuple(f"P{p}" for p in range(n_preterminals)),
                tuple(f"w{w}" for w in used), root, rules, prob, lexical, lexical_prob,
                symbol_counts=np.arange(n, 0, -1))


def drawn_sentences(grammar, lengths):
    """Sentences of the grammar with exactly these lengths."""
    drawn = sample_trees(grammar, 3000, seed=3, max_length=L).tokens
    return [[grammar.words[w] for w in drawn.row(int(np.flatnonzero(drawn.lengths == n)[0]))] for n in lengths]


@pytest.fixture(scope="module")
def paper_sized():
    return sparse_grammar(20, 268, 400, 120)


def transforms_for(rank):
    rng = np.random.default_rng(1)
    return {width: np.linalg.qr(rng.random((20, rank)))[0].T for width in range(2, L + 1)}


def test_few_nonterminals_at_1274_dimensions(paper_sized):
    model = ApproximateInsideOutside(paper_sized, L, 20, 45, rank=None, backend="structured")
    assert (model.n_layers, model.n_heads, model.embedding_dim) == (2 * L + 1, 20, 274 + 40 * L)
    sentences = drawn_sentences(paper_sized, (25, 17))
    for sentence, charts in zip(sentences, model.read_charts(model(sentences)), strict=True):
        for found, expected in zip(charts, algorithm_charts(model, sentence), strict=True):
            assert entry_errors(found, expected).max() <= 1e-11


@pytest.mark.parametrize(("rule", "n_heads"), [("clip", 15), ("literal", 15), ("signed", 30)])
def test_low_rank_at_1274_dimensions(paper_sized, rule, n_heads):
    model = ApproximateInsideOutside(paper_sized, L, 20, 45, 15, rule, transforms_for(15), backend="structured")
    assert (model.n_layers, model.n_heads, model.embedding_dim) == (2 * L + 1, n_heads, 274 + 40 * L)
    (sentence,) = drawn_sentences(paper_sized, (25,))
    charts = model.read_charts(model(sentence))
    expected, before = recursion_charts(model, sentence, charts)
    for found, one, size in zip(charts, expected, before, strict=True):
        assert span_errors(found, one, size).max() <= 1e-13
    for found, one in zip(charts, algorithm_charts(model, sentence), strict=True):
        assert span_errors(found, one).max() <= 1e-11


def test_dense_layers_of_the_1274_dimensional_model_are_the_structured_ones(paper_sized):
    """A layer's full matrices, applied to the same stream; one of every kind, since a whole pass takes a minute."""
    model = ApproximateInsideOutside(paper_sized, L, 20, 45, 15, "clip", transforms_for(15), backend="structured")
    (sentence,) = drawn_sentences(paper_sized, (25,))
    steps = list(model.steps(sentence))
    for number in (1, 12, 25, 36, 51):
        layer = DenseLayer(model.plan.layers[number - 1])
        assert sum(len(heads.query) for heads in layer.heads) == (2 if number == 25 else 15)
        assert all(heads.query.shape[1:] == heads.value.shape[1:] == (1274, 1274) for heads in layer.heads)
        found = layer(steps[number - 1][None])[0]
        # what the layer wrote, against the largest number it wrote at the same token
        wrote, expected = found - steps[number - 1], steps[number] - steps[number - 1]
        size = expected.abs().amax(-1, keepdim=True).clamp(min=1e-300)
        assert float(((wrote - expected).abs() / size).max()) <= 1e-11


def test_1600_nonterminals_and_25_words():
    grammar = sparse_grammar(880, 720, 2000, 20)
    model = RelativeInsideOutside(grammar, L)
    assert model.backend == "structured"
    assert (model.n_layers, model.embedding_dim) == (49, 80_001)
    (sentence,) = drawn_sentences(grammar, (25,))
    inside, outside = model.read_charts(model(sentence))
    total = float(inside[0, L] @ outside[0, L])
    assert total > 0
    words = np.arange(L)
    sums = np.einsum("ia,ia->i", inside[words, words + 1], outside[words, words + 1])
    np.testing.assert_allclose(sums / total, 1.0, rtol=1e-10)


@pytest.mark.parametrize(("model_class", "backend"), [(RelativeInsideOutside, "dense"),
                                                      (HardAttentionInsideOutside, "structured")])
def test_float32_needs_rescaled_leaves_and_then_keeps_marginals(random_grammar, random_sentence, model_class, backend):
    grammar = random_grammar(0, n_interminals=2, n_preterminals=3, n_words=400, density=0.9)
    errors = {True: [], False: []}
    for n in (8, 16):
        sentence = random_sentence(grammar, n, seed=4)
        expected = inside_outside(grammar, [sentence])[0].marginals
        assert expected.any()
        for rescale, found in errors.items():
            model = model_class(grammar, 16, dtype=torch.float32, rescale=rescale, backend=backend)
            found.append(np.abs(model.read_marginals(model(sentence)) - expected).max())
    assert max(errors[True]) <= 1e-5
    assert max(errors[False]) > 1e-2  # underflow: what rescaling is for


@pytest.mark.craft
@pytest.mark.slow
def test_english_charts_of_theorem_3_2_equal_the_engines(craft_treebank, craft_grammar):
    of_length = {len(words): words for words in (tree.words() for tree in reversed(split(craft_treebank).test))}
    sentences = [of_length[n] for n in (25, *range(1, 10), *range(11, 25, 2), 20, 22, 24)]
    assert len(sentences) == 20
    model = RelativeInsideOutside(craft_grammar, L)
    single = RelativeInsideOutside(craft_grammar, L, dtype=torch.float32, rescale=True)
    for number, sentence in enumerate(sentences):
        chart = inside_outside(craft_grammar, [sentence], backend="cpu", outside="full")[0]
        for found, expected in zip(model.read_charts(model(sentence)), linear(chart), strict=True):
            assert entry_errors(found, expected).max() <= 1e-9
        if number < 1:
            assert np.abs(single.read_marginals(single(sentence)) - chart.marginals).max() <= 1e-5


@pytest.mark.craft
@pytest.mark.parametrize("variant", ["vm", "novm"])
def test_english_low_rank_model_runs_the_approximate_recursion(craft_treebank, craft_grammar, variant):
    parts = split(craft_treebank)
    grammar = craft_grammar if variant == "vm" else learn_pcfg(parts.train, variant=variant)
    model = ApproximateInsideOutside(grammar, L, 20, 45, 15)
    n_leaves = len(model.plan.leaf_symbols)
    assert (model.n_layers, model.n_heads) == (2 * L + 1, 15)
    assert model.embedding_dim == n_leaves + 2 * (L - 1) * 20 + 45 + 1
    sentences = [words for words in (tree.words() for tree in parts.test) if 2 <= len(words) <= L][:12]
    end_to_end = []
    for sentence, charts in zip(sentences, model.read_charts(model(sentences)), strict=True):
        expected, before = recursion_charts(model, sentence, charts)
        algorithm = algorithm_charts(model, sentence)
        for found, one, size, other in zip(charts, expected, before, algorithm, strict=True):
            assert span_errors(found, one, size).max() <= 1e-12
            end_to_end.append(span_errors(found, other)[np.triu_indices(len(found), 1)])
    # spans that W+ W cancels to rounding noise differ between any two implementations; they are few
    assert np.mean(np.concatenate(end_to_end) <= 1e-9) > 0.99
