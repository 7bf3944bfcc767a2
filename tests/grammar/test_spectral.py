"""Spectral estimation: projections, smoothing, the one-state grammar, files; node tables and features."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse

from pcfg_artifact.cli import main
from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.latent import LatentPCFG
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.grammar.spectral import (
    NONE,
    collect_nodes,
    inside_features,
    latent_pcfg,
    learn_spectral,
    node_vectors,
    outside_features,
    smoothed_moment,
    truncated_svd,
)
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.latent_engine import latent_inside_outside
from pcfg_artifact.run.stage_folder import Folder
from pcfg_artifact.treebank.tree import Tree

EXACT = 1e-9


@pytest.fixture(scope="module")
def data():
    source = PCFG.from_rules(
        root={"S": 0.8, "X": 0.2},
        binary=[("S", "X", "S", 0.3), ("S", "P", "X", 0.4), ("S", "P", "Q", 0.3), ("X", "Q", "P", 0.6),
                ("X", "X", "P", 0.4)],
        lexical=[("P", "a", 0.5), ("P", "b", 0.3), ("P", "c", 0.2), ("Q", "b", 0.4), ("Q", "d", 0.6)])
    trees = list(sample_trees(source, 400, seed=3))
    return trees, learn_pcfg(trees, "novm", cutoff=0)


def test_one_state_for_every_symbol_is_the_pcfg(data):
    trees, pcfg = data
    latent = learn_spectral(trees, pcfg, "novm", 1, 1)
    np.testing.assert_allclose(latent.tensors, pcfg.binary_prob, rtol=EXACT)
    np.testing.assert_allclose(latent.lexical[:, 0], pcfg.lexical_prob, rtol=EXACT)
    np.testing.assert_allclose(latent.root[:, 0], pcfg.root, rtol=EXACT)
    sentences = [tree.words() for tree in trees[:40]] + [["d", "d"]]
    charts = inside_outside(pcfg, sentences)
    assert charts[-1].log_prob == -np.inf
    for plain, chart in zip(charts, latent_inside_outside(latent, sentences, pruning=0.0), strict=True):
        assert chart.log_prob == pytest.approx(plain.log_prob, abs=EXACT)
        np.testing.assert_allclose(chart.span_scores(), plain.span_scores(), rtol=EXACT, atol=EXACT)


def test_mean_of_outside_times_inside_is_the_identity(data):
    trees, pcfg = data
    nodes = collect_nodes(trees, pcfg, "novm")
    vectors = node_vectors(nodes, pcfg, 3, 4)
    assert vectors.n_states.max() > 1
    for a, m in enumerate(vectors.n_states):
        mine = nodes.symbol == a
        product = vectors.outside[mine, :m].T @ vectors.inside[mine, :m] / mine.sum()
        np.testing.assert_allclose(product, np.eye(m), atol=EXACT)
        assert not vectors.inside[mine, m:].any()


def test_fewer_states_are_the_first_of_more(data):
    trees, pcfg = data
    nodes = collect_nodes(trees, pcfg, "novm")
    cut, direct = node_vectors(nodes, pcfg, 4, 4).truncated(pcfg, 2, 1), node_vectors(nodes, pcfg, 2, 1)
    np.testing.assert_array_equal(cut.n_states, direct.n_states)
    np.testing.assert_allclose(np.abs(cut.inside), np.abs(direct.inside), atol=1e-7)
    np.testing.assert_allclose(latent_pcfg(cut, pcfg).lexical, latent_pcfg(direct, pcfg).lexical, atol=1e-7)


def test_truncated_svd_iterated_equals_the_dense_one():
    rng = np.random.default_rng(0)
    matrix = sparse.csr_array(sparse.random(300, 200, density=0.05, random_state=rng))
    u, s, v = truncated_svd(matrix, 5, rng)
    dense = np.linalg.svd(matrix.toarray(), full_matrices=False)
    np.testing.assert_allclose(s, dense[1][:5], rtol=EXACT)
    np.testing.assert_allclose((u * s) @ v.T, (dense[0][:, :5] * dense[1][:5]) @ dense[2][:5], atol=1e-9)


def test_smoothing_mixes_the_moment_with_its_factors():
    rng = np.random.default_rng(1)
    z, y, x = rng.standard_normal((3, 4, 2))
    means = rng.standard_normal((3, 2))
    trust = 2.0 / (12.2 + 2.0)  # 4 occurrences
    expected = np.empty((2, 2, 2))
    for i, j, k in np.ndindex(2, 2, 2):
        together = np.mean(z[:, i] * y[:, j] * x[:, k])
        pairs = (np.mean(z[:, i] * y[:, j]) * x[:, k].mean() + np.mean(z[:, i] * x[:, k]) * y[:, j].mean()
                 + np.mean(y[:, j] * x[:, k]) * z[:, i].mean()) / 3
        apart = z[:, i].mean() * y[:, j].mean() * x[:, k].mean()
        anywhere = means[0, i] * means[1, j] * means[2, k]
        expected[i, j, k] = trust * together + (1 - trust) * (
            trust * pairs + (1 - trust) * (trust * apart + (1 - trust) * anywhere))
    np.testing.assert_allclose(smoothed_moment(z, y, x, *means, 12.2), expected, rtol=1e-12)


def test_learning_twice_gives_the_same_grammar(data):
    trees, pcfg = data
    first, second = (learn_spectral(trees, pcfg, "novm", 3, 3, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.tensors, second.tensors)


def test_no_state_is_refused(data):
    trees, pcfg = data
    with pytest.raises(GrammarError, match="0 states for in-terminals and 4 for pre-terminals"):
        learn_spectral(trees, pcfg, "novm", 0, 4)


def test_saved_grammar_is_read_back_beside_its_pcfg(data, tmp_path):
    trees, pcfg = data
    latent = learn_spectral(trees, pcfg, "novm", 2, 3)
    assert not LatentPCFG.is_in(tmp_path)
    pcfg.save(tmp_path)
    latent.save(tmp_path)
    assert LatentPCFG.is_in(tmp_path)
    loaded = LatentPCFG.load(tmp_path)
    assert loaded.pcfg.nonterminals == pcfg.nonterminals
    for name in ("n_states", "root", "lexical", "tensors"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(latent, name))


def test_latent_grammar_of_another_pcfg_is_refused(data, tmp_path):
    trees, pcfg = data
    learn_spectral(trees, pcfg, "novm", 2, 2).save(tmp_path)
    learn_pcfg(trees[:200], "novm", cutoff=0).save(tmp_path)
    with pytest.raises(GrammarError, match="belongs to another PCFG"):
        LatentPCFG.load(tmp_path)


def test_parts_that_do_not_fit_are_refused(data):
    trees, pcfg = data
    latent = learn_spectral(trees, pcfg, "novm", 2, 2)
    with pytest.raises(GrammarError, match="tensors of the latent grammar has shape"):
        LatentPCFG(pcfg, latent.n_states, latent.root, latent.lexical, latent.tensors[:-1])
    with pytest.raises(GrammarError, match="not finite"):
        LatentPCFG(pcfg, latent.n_states, latent.root * np.nan, latent.lexical, latent.tensors)


def test_learn_writes_the_latent_grammar_beside_the_pcfg(data, tmp_path, capsys):
    trees, _ = data
    source = tmp_path / "treebank.txt"
    source.write_text("".join(f"{tree}\n" for tree in trees))
    options = ["learn", "--treebank", str(source), "--out", str(tmp_path / "g"), "--cutoff", "0"]
    assert main([*options, "--estimator", "spectral", "--states", "2", "3"]) == 0
    assert "interminal states" in capsys.readouterr().out
    latent = LatentPCFG.load(tmp_path / "g")
    assert latent.n_states[:latent.pcfg.n_interminals].max() == 2
    assert latent.n_states[latent.pcfg.n_interminals:].max() == 3
    assert main([*options, "--estimator", "spectral", "--states", "2", "0"]) == 2
    assert main([*options, "--estimator", "spectral", "--smoothing", "-1"]) == 2


def test_states_tool_gives_the_curve_and_one_state_the_pcfg(data, tmp_path, capsys):
    trees, _ = data
    source = tmp_path / "treebank.txt"
    source.write_text("".join(f"{tree}\n" for tree in trees))
    options = ["states", "--treebank", str(source), "--cutoff", "0", "--out", str(tmp_path / "curve")]
    assert main([*options, "--states", "3", "1"]) == 0
    assert (tmp_path / "curve" / "f1_by_states.png").read_bytes().startswith(b"\x89PNG")
    found = Folder(tmp_path / "curve").metrics()
    value = {(m.model, m.size, m.convention, m.metric): m.value for m in found}
    assert {key[:2] for key in value} == {("PCFG", None), ("spectral PCFG", 1), ("spectral PCFG", 3)}
    for score in product(("PB", "KIM"), ("sentence_f1", "corpus_f1")):  # KIM: NaN, the tags are no word tags
        np.testing.assert_equal(value["spectral PCFG", 1, *score], value["PCFG", None, *score])
    capsys.readouterr()
    assert main([*options, "--states", "0"]) == 2
    assert "--states is 0" in capsys.readouterr().err


def test_parse_scores_the_latent_grammar_beside_the_pcfg(data, tmp_path, capsys):
    trees, _ = data
    source, grammar = tmp_path / "treebank.txt", str(tmp_path / "g")
    source.write_text("".join(f"{tree}\n" for tree in trees))
    assert main(["learn", "--treebank", str(source), "--out", grammar, "--cutoff", "0"]) == 0
    (tmp_path / "sentences").write_text("a b\n\na b a\n")
    assert main(["parse", "--grammar", grammar, "--decode", "latent", str(tmp_path / "sentences")]) == 2
    assert "latent.json not found" in capsys.readouterr().err
    assert main(["learn", "--treebank", str(source), "--out", grammar, "--cutoff", "0", "--estimator", "spectral"]) == 0
    capsys.readouterr()
    assert main(["parse", "--grammar", grammar, "--treebank", str(source)]) == 0
    table = capsys.readouterr().out
    assert "Inside-Outside" in table
    assert "latent PCFG" in table
    assert "sentences is not positive" in table
    assert main(["parse", "--grammar", grammar, "--decode", "latent", str(tmp_path / "sentences")]) == 0
    first, empty, last = capsys.readouterr().out.split("\n")[:3]
    assert first == "(S (P^S a) (Q^S b))"
    assert empty == ""
    assert last == "(S (P^S a) (X^S (Q^X b) (P^X a)))"


# ---- node tables and features, by hand on small trees --------------------------------------------------------------


def leaf(label: str, word: str) -> Tree:
    return Tree(label, word=word)


# Preorder: S(0) D(1) V(2) V(3) N(4) | S(5) D(6) N(7): in the first tree S -> D X, X -> V N is written as S -> D V'.
FIRST = Tree("S", (leaf("D", "The"), Tree("X", (leaf("V", "runs"), leaf("N", "Dog")))))
SECOND = Tree("S", (Tree("X", (leaf("V", "runs"), leaf("N", "cat"))), leaf("D", "the")))
THIRD = Tree("S", (leaf("D", "The"), Tree("X", (leaf("V", "sees"), leaf("N", "dog")))))


@pytest.fixture(scope="module")
def learned():
    trees = [FIRST, SECOND, THIRD]
    grammar = learn_pcfg(trees, "novm", cutoff=0)
    return grammar, collect_nodes(trees, grammar, "novm")


def test_nodes_are_linked_in_preorder(learned):
    grammar, nodes = learned
    assert [grammar.nonterminals[a] for a in nodes.symbol] == list("SDXVN") + list("SXVND") + list("SDXVN")
    assert nodes.parent.tolist() == [NONE, 0, 0, 2, 2, NONE, 5, 6, 6, 5, NONE, 10, 10, 12, 12]
    assert nodes.left[:5].tolist() == [1, NONE, 3, NONE, NONE]
    assert nodes.right[:5].tolist() == [2, NONE, 4, NONE, NONE]
    assert nodes.is_right[:5].tolist() == [False, False, True, False, True]
    assert np.flatnonzero(nodes.is_root).tolist() == [0, 5, 10]


def test_rules_of_nodes_are_those_of_the_grammar(learned):
    grammar, nodes = learned
    counts = np.bincount(nodes.rule, minlength=len(grammar.binary) + len(grammar.lexical))
    heads = np.concatenate([grammar.binary[:, 0], grammar.lexical[:, 0]])
    prob = np.concatenate([grammar.binary_prob, grammar.lexical_prob])
    np.testing.assert_allclose(counts / np.bincount(nodes.symbol)[heads], prob)


def test_inside_features_are_rule_and_rule_with_one_child_expanded(learned):
    grammar, nodes = learned
    features = inside_features(nodes, grammar)
    first, second, third = features[[0, 5, 10]]
    assert first[0] == third[0]
    assert first[0] != second[0]
    assert first[1] == third[1]  # D expands to the same lower-cased word
    assert first[2] == third[2]  # X expands to V N in both
    x_first, x_third = features[2], features[12]
    assert x_first[0] == x_third[0]
    assert x_first[1] != x_third[1]  # runs, sees
    assert x_first[2] == x_third[2]  # Dog, dog
    assert features[4].tolist() == features[14].tolist()
    assert (features[4, 1:] == NONE).all()


def test_outside_features_are_paths_of_rules_and_sides(learned):
    grammar, nodes = learned
    features = outside_features(nodes, grammar)
    assert (features[[0, 5, 10], 0] == features[0, 0]).all()  # TOP
    assert (features[[0, 5, 10], 1:] == NONE).all()
    assert features[2].tolist() == features[12].tolist()
    assert features[2, 0] != features[6, 0]  # X on the right of D, and on its left
    assert features[2, 2] == NONE  # the path ends at the root
    assert features[3, 0] == features[7, 0]  # V under X -> V N
    assert features[3, 1] != features[7, 1]  # ... under S -> D X, under S -> X D
    assert features[3, 0] != features[4, 0]  # left and right of one rule


def test_no_two_symbols_share_a_feature(learned):
    grammar, nodes = learned
    for features in (inside_features(nodes, grammar), outside_features(nodes, grammar)):
        for feature in np.unique(features[features != NONE]):
            rows, columns = np.nonzero(features == feature)
            assert len(set(nodes.symbol[rows])) == 1
            assert len(set(columns)) == 1


def test_trees_with_other_rules_than_the_grammar_are_refused(learned):
    grammar, _ = learned
    for tree in (Tree("S", (leaf("D", "the"), leaf("D", "the"))), Tree("S", (leaf("D", "the"), leaf("Z", "the"))),
                 Tree("S", (leaf("D", "The"), Tree("X", (leaf("V", "the"), leaf("N", "dog")))))):
        with pytest.raises(GrammarError, match="a rule that the grammar lacks"):
            collect_nodes([tree], grammar, "novm")
