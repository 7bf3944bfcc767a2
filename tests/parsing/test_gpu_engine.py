"""The engine `gpu` under Triton's interpreter: the kernels that a GPU runs, on random grammars and on real ones.

The interpreter takes half a second for a batch, whatever is in it.  So random grammars are tried many at once: their
disjoint union is one grammar, in which each sentence has the trees of its own grammar and no others.
`PCFG_ARTIFACT_ALL_EXAMPLES=1 ./run_all.sh test tests/parsing` tries 200 grammars in every test of random ones.
"""

import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing import engine as engines
from pcfg_artifact.parsing.chart_index import n_cells
from pcfg_artifact.parsing.cpu import CpuEngine
from pcfg_artifact.parsing.cpu_kernels.rule_index import compiled
from pcfg_artifact.parsing.engine import EngineOptions, inside_outside, leaves_of, sentences_left_to_cpu

interpreter = pytest.importorskip("triton.runtime.interpreter")

from pcfg_artifact.parsing.gpu import gpu_engine, kernels, row_sums  # noqa: E402 - they import Triton
from pcfg_artifact.parsing.gpu.batch_pass import FORMS, BatchPass, first_of_width, interpreter_blocks  # noqa: E402
from pcfg_artifact.parsing.gpu.gpu_engine import GpuEngine, chart_order  # noqa: E402
from pcfg_artifact.parsing.gpu.row_sums import SHORT, DeviceRules  # noqa: E402
from tests.interpreted import checked_integers  # noqa: E402

# float64: sums of products of a few dozen numbers, each rounded to 1.1e-16, and logs of up to 100 rounded likewise.
EXACT = 1e-12
# float32: every sum over splits and rules adds a few roundings of 6e-8 for every word below a span.
SINGLE = 1e-5  # relative, up to 12 words; as absolute error of marginals, which are ratios of such sums, too
N_GRAMMARS = 20  # of a union
FEW = 10 if os.environ.get("PCFG_ARTIFACT_ALL_EXAMPLES") else 3  # unions where CI cannot wait for ten


def union(grammars) -> PCFG:
    """One grammar with the symbols and words of all, each with its number; roots share the probability."""
    root, binary, lexical = {}, [], []
    for n, grammar in enumerate(grammars):
        names = [f"{name}-{n}" for name in grammar.nonterminals]
        root |= dict(zip(names, (grammar.root / len(grammars)).tolist(), strict=True))
        binary += [(names[a], names[b], names[c], float(p))
                   for (a, b, c), p in zip(grammar.binary, grammar.binary_prob, strict=True)]
        lexical += [(names[a], f"{grammar.words[w]}-{n}", float(p))
                    for (a, w), p in zip(grammar.lexical, grammar.lexical_prob, strict=True)]
    return PCFG.from_rules(root, binary, lexical)


def some_constraint(length, rng):
    """A span that a tree must have or may not have, for a third of the sentences of two words and more."""
    if length < 2 or rng.random() > 0.3:
        return {}
    i, j = sorted(rng.choice(length + 1, 2, replace=False).tolist())
    return {(i, j): bool(rng.integers(2))}


def assert_logs_agree(found, expected, tolerance):
    assert (np.isneginf(found) == np.isneginf(expected)).all()
    possible = ~np.isneginf(expected)
    np.testing.assert_allclose(found[possible], expected[possible], rtol=0, atol=tolerance)


def assert_charts_agree(found, expected, symbols, shift, tolerance):
    """The entries of `symbols` of a chart of a union, against the chart of the one grammar, whose log Z differs."""
    assert_logs_agree(np.array([found.log_prob]), np.array([expected.log_prob + shift]), tolerance)
    assert_logs_agree(found.log_inside[..., symbols], expected.log_inside, tolerance)
    assert_logs_agree(found.log_outside[..., symbols], expected.log_outside + shift, tolerance)
    np.testing.assert_allclose(found.marginals[..., symbols], expected.marginals, rtol=0, atol=tolerance)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), outside=st.sampled_from(["pruned", "full"]))
def test_every_entry_of_200_random_grammars_is_that_of_the_reference(random_grammar, seed, outside):
    """Sparse and dense grammars, rules of probability 0, one word, no parse, constraints, padding, mixed lengths."""
    assert_random_grammars_agree(random_grammar, seed, outside, "float64", EXACT)


@settings(max_examples=FEW, deadline=None)
@given(seed=st.integers(0, 10**6), outside=st.sampled_from(["pruned", "full"]))
def test_float32_with_exponents_keeps_its_bound_on_random_grammars(random_grammar, seed, outside):
    assert_random_grammars_agree(random_grammar, seed, outside, "float32", SINGLE)


def assert_random_grammars_agree(random_grammar, seed, outside, dtype, tolerance):
    rng = np.random.default_rng(seed)
    grammars = [random_grammar(seed + n, *rng.integers(1, 5, size=3), density)
                for n, density in enumerate(rng.choice([0.1, 0.3, 0.9], N_GRAMMARS))]
    together = union(grammars)
    sentences = [[f"w{w}" for w in rng.integers(grammar.n_words, size=length)]
                 for grammar, length in zip(grammars, rng.integers(0, 9, N_GRAMMARS), strict=True)]
    constraints = [some_constraint(len(words), rng) for words in sentences]
    named = [[f"{word}-{n}" for word in words] for n, words in enumerate(sentences)]
    named[0] = [*named[0], "nowhere"]
    sentences[0] = [*sentences[0], "nowhere"]
    constraints[0] = {}
    found = inside_outside(together, named, backend="gpu", dtype=dtype, outside=outside, constraints=constraints)
    shift = -np.log(N_GRAMMARS)
    for n, (grammar, chart) in enumerate(zip(grammars, found, strict=True)):
        expected = inside_outside(grammar, [sentences[n]], backend="reference", outside=outside,
                                  constraints=[constraints[n]])[0]
        symbols = [together.nonterminal_index[f"{name}-{n}"] for name in grammar.nonterminals]
        assert_charts_agree(chart, expected, symbols, shift, tolerance)
        if chart.log_prob > -np.inf:  # the sum of alpha beta at every word is Z
            at_words = chart.marginals[np.arange(chart.length), np.arange(1, chart.length + 1)].sum(axis=1)
            np.testing.assert_allclose(at_words, 1.0, rtol=0, atol=tolerance)
    assert not sentences_left_to_cpu(together).get("range")


@settings(max_examples=FEW, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_best_trees_span_scores_and_masked_words_of_random_grammars(random_grammar, seed):
    rng = np.random.default_rng(seed)
    densities = rng.choice([0.3, 0.9], N_GRAMMARS).tolist()
    grammars = [random_grammar(seed + n, 3, 3, 3, density) for n, density in enumerate(densities)]
    together = union(grammars)
    named = [[f"w{w}-{n}" for w in rng.integers(3, size=rng.integers(1, 8))] for n in range(N_GRAMMARS)]
    leaves = leaves_of(together, named)
    engine, twin = GpuEngine(together, EngineOptions(outside="full")), \
        engines.engine_for(together, EngineOptions("reference", outside="full"))
    for best, expected in zip(engine.best_trees(leaves), twin.best_trees(leaves), strict=True):
        assert_logs_agree(np.array([best.log_prob]), np.array([expected.log_prob]), EXACT)
        assert len(best.nodes) == len(expected.nodes)
    charts = list(twin.charts(leaves))
    for scores, chart in zip(engine.span_scores(leaves), charts, strict=True):
        assert scores.length == chart.length
        assert_logs_agree(np.array([scores.log_prob]), np.array([chart.log_prob]), EXACT)
        np.testing.assert_allclose(scores.span_scores(), chart.span_scores(), rtol=0, atol=EXACT)
    for outside, chart in zip(engine.leaf_outside(leaves), charts, strict=True):
        np.testing.assert_allclose(outside, chart.leaf_outside(together.n_interminals), rtol=0, atol=EXACT)


# ---- one batch, looked at closely ------------------------------------------------------------------------------------


def batch_pass(grammar, sentences, form="float64", **blocks):
    leaves = list(leaves_of(grammar, sentences))
    padded = np.zeros((len(leaves), max(map(len, leaves)), grammar.n_preterminals))
    for row, own in zip(padded, leaves, strict=True):
        row[:len(own)] = own
    rules = DeviceRules(compiled(grammar), FORMS[form].dtype, torch.device("cpu"))
    return BatchPass(rules, FORMS[form], interpreter_blocks(rules)._replace(**blocks), torch.as_tensor(padded),
                     torch.tensor([len(own) for own in leaves], dtype=torch.int32), None)


def results(run):
    """log Z, and of every sentence its span scores, its exponents and the outside values of its words."""
    run.inside()
    run.outside(is_pruned=False)
    scores, outside = run.span_scores(), run.leaf_outside()
    found = [run.log_z().clone()]
    for s, length in enumerate(run.lengths.tolist()):
        order = chart_order(length, run.n_cells)
        found += [x[s, order] for x in (scores, run.exponents, run.outside_exponents)] + [outside[s, :length]]
    return found


SENTENCES = ((0, 1, 2, 0, 1), (0,), (1, 2), (2, 1, 0, 0, 1, 1))


@pytest.fixture
def dense(random_grammar):
    return random_grammar(11, 5, 4, 3, 0.9)


def words_of(grammar):
    return [[grammar.words[w] for w in sentence] for sentence in SENTENCES]


@pytest.mark.parametrize("form", ["float64", "float32"])
def test_results_have_the_same_bits_in_any_order_of_programs_and_with_any_blocks(dense, form, monkeypatch):
    expected = results(batch_pass(dense, words_of(dense), form))
    many = {"cells": 8, "sum_cells": 8, "pairs": 16, "symbols": 16}
    for found, twin in zip(results(batch_pass(dense, words_of(dense), form, **many)), expected, strict=True):
        assert torch.equal(found, twin)
    builder, shuffled = interpreter.interpreter_builder, []
    set_index = builder.set_grid_idx

    def elsewhere(x, y, z):
        """The programs of a launch in an order by chance, along both axes."""
        along, across = builder.grid_dim[:2]
        shuffled.append(along * across > 1)
        order = np.random.default_rng(along * across).permutation(along * across)
        set_index(*divmod(int(order[x * across + y]), across), z)

    monkeypatch.setattr(builder, "set_grid_idx", elsewhere)
    for found, twin in zip(results(batch_pass(dense, words_of(dense), form, **many)), expected, strict=True):
        assert torch.equal(found, twin)
    assert sum(shuffled) > 50


def test_nan_outside_the_triangles_never_leaks(dense, monkeypatch):
    """Memory that nobody has written is NaN, and exponents there are absurd: results have the same bits."""
    expected = results(batch_pass(dense, words_of(dense)))
    empty = torch.empty

    def filled(*args, **options):
        found = empty(*args, **options)
        return found.fill_(torch.nan) if found.dtype.is_floating_point else found.fill_(2**28)

    monkeypatch.setattr(torch, "empty", filled)
    run = batch_pass(dense, words_of(dense))
    run.right_words.fill_(torch.nan)
    run.left_words.fill_(torch.nan)
    for found, twin in zip(results(run), expected, strict=True):
        assert torch.equal(found, twin)


def test_a_grammar_of_5000_symbols_and_100000_rules_in_shrunken_batches(monkeypatch):
    """Index types, grids, offsets: no sum of integers leaves its type, and values are those of the cpu engine."""
    rng = np.random.default_rng(0)
    n = 5_000
    inner, leaf = [f"I{a}" for a in range(n)], [f"P{p}" for p in range(300)]
    # Most rules belong to symbols that no sentence reaches; the first 60 make trees.
    binary = [(inner[a], inner[b], inner[c], 1.0) for a, b, c in
              {tuple(x) for x in rng.integers(n, size=(99_000, 3)).tolist()}]
    few = {(a, b, c) for a in range(60) for b, c in rng.integers(60, size=(8, 2)).tolist()}
    binary += [(inner[a], inner[b], inner[c], 1.0) for a, b, c in few]
    binary += [(inner[a], leaf[p], leaf[q], 1.0) for a in range(60)
               for p, q in rng.integers(300, size=(4, 2)).tolist()]
    binary += [(inner[a], inner[b], leaf[p], 1.0) for a, b, p in {
        (a, int(rng.integers(60)), int(rng.integers(300))) for a in range(60) for _ in range(5)}]
    binary = list(dict.fromkeys(binary))
    total = {}
    for a, *_ in binary:
        total[a] = total.get(a, 0) + 1
    grammar = PCFG.from_rules(root={inner[a]: 1 / 60 for a in range(60)}, is_proper=False,
                              binary=[(a, b, c, 1 / total[a]) for a, b, c, _ in binary],
                              lexical=[(p, f"w{k % 5}", 1.0) for k, p in enumerate(leaf)])
    assert len(grammar.binary) > 100_000
    monkeypatch.setattr(row_sums, "TILE", 8192)  # few programs, because each is slow in the interpreter
    engine = GpuEngine(grammar)
    assert engine.rules.pairs.n > SHORT  # pairs are numbered in 32 bits, symbols in 16
    assert engine.rules.given.lists[0].source.dtype == engine.rules.pairs.left.dtype == torch.int16
    assert engine.rules.parents.lists[0].source.dtype == torch.int32
    engine.blocks = engine.blocks._replace(cells=2, sum_cells=4, pairs=1 << 14, symbols=8192)
    sentences = [["w0", "w1", "w2", "w3"], ["w1", "w2"]]
    leaves = leaves_of(grammar, sentences)
    with checked_integers():
        found = list(engine.span_scores(leaves))
    for scores, chart in zip(found, CpuEngine(grammar).charts(leaves), strict=True):
        assert scores.log_prob == pytest.approx(chart.log_prob, rel=EXACT)
        assert scores.log_prob > -np.inf
        np.testing.assert_allclose(scores.span_scores(), chart.span_scores(), rtol=0, atol=EXACT)


def test_the_last_row_of_512_sentences_of_126_words_is_found(tmp_path):
    """Charts of 5,000 symbols, 2 * 10^10 numbers, in a file that takes room for the rows that are written alone."""
    n, longest, row_size = 512, 126, 5_008
    chart = torch.from_file(str(tmp_path / "chart"), shared=True, size=n * n_cells(longest) * row_size)
    chart[-row_size:] = torch.arange(row_size)
    exponents = torch.zeros((n, n_cells(longest)), dtype=torch.int32)
    lengths, status = torch.zeros((2, n), dtype=torch.int32)
    lengths[-1] = longest
    first = first_of_width(torch.arange(longest + 2), longest).to(torch.int32)
    with checked_integers():
        kernels.normalise[n // 64, 1](chart, exponents, first, lengths, status, n, longest, longest, 5_000, row_size,
                                      BIAS=50, SMALLEST=2.0 ** -118, BLOCK_C=64, BLOCK_S=1024)
    assert torch.equal(chart[-row_size:-8], torch.arange(5_000) * 2.0 ** 38)  # 4,999 has 12 bits behind its first
    assert exponents[-1, -1] == -38
    assert int((exponents != 0).sum()) == 1
    assert not status.any()


# ---- range, memory, absence ------------------------------------------------------------------------------------------

FADING = PCFG.from_rules(  # S over n words has about 0.999^n of the mass, T about 0.001^n
    root={"S": 0.5, "T": 0.5},
    binary=[("S", "S", "X", 0.5), ("S", "X", "X", 0.5), ("T", "T", "Y", 0.5), ("T", "Y", "Y", 0.5)],
    lexical=[("X", "a", 1.0), ("Y", "a", 1e-30), ("Y", "b", 1.0 - 1e-30)])


@pytest.mark.parametrize(("dtype", "length", "is_left"), [("float64", 12, False), ("float32", 12, True),
                                                          ("float32", 2, False)])
def test_sentences_out_of_range_go_to_the_cpu_engine_and_are_counted(dtype, length, is_left):
    """12 words: the two symbols of a span differ by 2^1200 at most; float32 with exponents holds 2^168."""
    sentence = ["a"] * (length - 1) + ["b"]
    before = sentences_left_to_cpu(FADING).get("range", 0)
    chart = inside_outside(FADING, [sentence], backend="gpu", dtype=dtype)[0]
    expected = inside_outside(FADING, [sentence], backend="reference")[0]
    tolerance = EXACT if dtype == "float64" or is_left else SINGLE
    assert chart.log_prob == pytest.approx(expected.log_prob, rel=tolerance)
    assert_logs_agree(chart.log_inside, expected.log_inside, 10 * tolerance * abs(expected.log_prob))
    assert sentences_left_to_cpu(FADING).get("range", 0) - before == is_left


def test_batches_are_cut_to_the_free_memory_and_nothing_is_dropped(dense, monkeypatch):
    sentences = [words * 1 for words in words_of(dense)] + [[], ["w0"]]
    expected = inside_outside(dense, sentences, backend="gpu")
    monkeypatch.setattr(gpu_engine, "WINDOW", 3)
    monkeypatch.setattr(gpu_engine, "available_memory", lambda: 1)  # every sentence is a batch of its own
    for chart, twin in zip(inside_outside(dense, sentences, backend="gpu"), expected, strict=True):
        np.testing.assert_array_equal(chart.inside, twin.inside)
        np.testing.assert_array_equal(chart.outside, twin.outside)
        assert chart.log_prob == twin.log_prob


def test_a_batch_that_does_not_fit_is_halved_and_what_does_not_fit_alone_goes_to_the_cpu_engine(dense, monkeypatch):
    class Limited(BatchPass):
        def __init__(self, rules, form, blocks, leaves, lengths, forbidden):
            if int(lengths.sum()) > 5:
                raise torch.OutOfMemoryError("no room")
            super().__init__(rules, form, blocks, leaves, lengths, forbidden)

    monkeypatch.setattr(gpu_engine, "BatchPass", Limited)
    found = inside_outside(dense, words_of(dense), backend="gpu")
    for chart, twin in zip(found, inside_outside(dense, words_of(dense)), strict=True):
        assert_logs_agree(chart.log_inside, twin.log_inside, EXACT)
    assert sentences_left_to_cpu(dense)["memory"] == 1  # the one of 6 words


def test_the_next_batch_is_launched_before_one_is_read(dense, monkeypatch):
    order = []
    def note(name, done):
        def noted(self, work, what):
            order.append(name)
            return done(self, work, what)
        monkeypatch.setattr(GpuEngine, name, noted)

    note("_launched", GpuEngine._launched)
    note("_read", GpuEngine._read)
    monkeypatch.setattr(gpu_engine, "available_memory", lambda: 1)
    list(GpuEngine(dense).log_probs(leaves_of(dense, [["w0"], ["w1"], ["w2"]])))
    assert order == ["_launched", "_launched", "_read", "_launched", "_read", "_read"]


def test_without_triton_or_a_gpu_the_engine_is_absent_in_one_sentence(tiny_grammar, monkeypatch):
    monkeypatch.setattr(gpu_engine.triton.knobs.runtime, "interpret", False)
    with pytest.raises(UsageError, match="device 'cuda' cannot be used by the engine `gpu`.*use the engine `cpu`"):
        inside_outside(tiny_grammar, [["she"]], backend="gpu")
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="the engine `gpu` needs Triton, which comes with torch's CUDA build"):
        inside_outside(tiny_grammar, [["she"]], backend="gpu")


def test_float32_is_for_gpus_with_slow_float64(monkeypatch):
    for capability, form in (((8, 0), "float64"), ((9, 0), "float64"), ((7, 5), "float32"), ((12, 0), "float32")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        assert gpu_engine.form_of(torch.device("cuda")) == form
    assert gpu_engine.form_of(torch.device("cpu")) == "float64"


# ---- real grammars ---------------------------------------------------------------------------------------------------


def assert_real_sentences_agree(grammar, sentences, dtype, tolerance):
    found = inside_outside(grammar, sentences, backend="gpu", dtype=dtype)
    for chart, twin in zip(found, inside_outside(grammar, sentences, backend="reference"), strict=True):
        np.testing.assert_array_equal(chart.symbols, twin.symbols)
        np.testing.assert_array_equal(chart.offsets, twin.offsets)
        for values, wanted in ((chart.entry_log_inside, twin.entry_log_inside),
                               (chart.entry_log_outside, twin.entry_log_outside)):
            assert_logs_agree(values, wanted, tolerance)
        np.testing.assert_allclose(chart.entry_marginals, twin.entry_marginals, rtol=0, atol=tolerance)
    assert not sentences_left_to_cpu(grammar).get("range")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_embedded_grammar_up_to_12_words(dtype):
    from pcfg_artifact.grammar.learning import learn_pcfg
    from pcfg_artifact.treebank.reading import read_treebank
    from pcfg_artifact.treebank.splits import split

    treebank = split(read_treebank("embedded"))
    sentences = [words for words in (tree.words() for tree in treebank.test) if len(words) <= 12]
    sentences = sorted(sentences, key=len)[:3] + sorted(sentences, key=len)[-3:]
    assert_real_sentences_agree(learn_pcfg(treebank.train), sentences, dtype, EXACT if dtype == "float64" else SINGLE)


@pytest.mark.craft
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_craft_up_to_10_words(craft_grammar, craft_treebank, dtype):
    from pcfg_artifact.treebank.splits import split

    sentences = [words for words in (tree.words() for tree in split(craft_treebank).test) if len(words) <= 10]
    chosen = [next(words for words in sentences if len(words) == length) for length in (5, 10)]
    assert_real_sentences_agree(craft_grammar, chosen, dtype, EXACT if dtype == "float64" else SINGLE)
