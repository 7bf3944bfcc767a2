"""The embedded treebank is a fair test of context: a word alone tells little of the tree, its neighbours much more.

What a probe of layer 0 can know is imitated by the words it reads, one-hot: the rows are those of the probes, every
sentence being BOS, its words as a model reads them, EOS.  The fits are those of the linear probe without its
standardisation, which would make the sparse inputs dense.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge

from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.decoding import labelled_recall
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.scoring import span_f1
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.probe_scores import decode_all, pearson
from pcfg_artifact.probing.representations import eos_rows, offsets_of, span_rows
from pcfg_artifact.treebank.reading import read_treebank
from pcfg_artifact.treebank.splits import Split, split
from pcfg_artifact.treebank.tree import Tree

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # as the probes do

N_FEW = 800  # training sentences of the fast test; the other tests use all 3,800 or say how many
ITERATIONS = 100  # of L-BFGS, as in the profile smoke
Rows = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(read_treebank("embedded"))


@pytest.fixture(scope="module")
def grammar(parts: Split) -> PCFG:
    return learn_pcfg(parts.train)


def corpus_of(grammar: PCFG, trees: Sequence[Tree], scores: Sequence[np.ndarray | None] = ()) -> Corpus:
    sentences = [[grammar.words[w] if w >= 0 else "<unk>" for w in grammar.encode(tree.words())] for tree in trees]
    return Corpus(sentences, trees, scores, ())


def one_hot(grammar: PCFG, corpus: Corpus, rows: np.ndarray) -> sparse.csr_matrix:
    """(n, k * tokens): which token stands in each of the k rows of every example."""
    number = {word: n for n, word in enumerate(["<bos>", "<eos>", "<unk>", *grammar.words])}
    tokens = np.array([number[token] for words in corpus.sentences for token in ("<bos>", *words, "<eos>")])
    n, k = rows.shape
    columns = tokens[rows] + len(number) * np.arange(k)
    return sparse.csr_matrix((np.ones(n * k), columns.ravel(), k * np.arange(n + 1)), (n, k * len(number)))


def around(rows: np.ndarray, lengths: np.ndarray, reach: int) -> np.ndarray:
    """The rows up to `reach` before and after each given row; beyond a sentence's ends its BOS and EOS."""
    offsets = offsets_of(lengths)
    sentence = np.searchsorted(offsets, rows, side="right") - 1
    near = [np.clip(rows + step, offsets[sentence], offsets[sentence + 1] - 1) for step in range(-reach, reach + 1)]
    return np.concatenate(near, axis=1)


def words_around(reach: int) -> Rows:
    """Rows of a tree probe that reads the words near its word as well, in the place of EOS."""
    return lambda lengths: around(eos_rows(lengths)[:, :1], lengths, reach)


def f1_from_words(grammar: PCFG, parts: Split, rows: Rows, n_train: int) -> float:
    """PB sentence F1 on the test split of trees decoded from relative depths, predicted from the words in `rows`."""
    train, test = corpus_of(grammar, parts.train[:n_train]), corpus_of(grammar, parts.test)
    fitted = LogisticRegression(max_iter=ITERATIONS)
    fitted.fit(one_hot(grammar, train, rows(train.lengths)), train.binary_depths)
    predicted = fitted.predict(one_hot(grammar, test, rows(test.lengths)))
    return span_f1(test.trees, decode_all(test, predicted), "PB").sentence


def test_rows_around_a_word_stop_at_the_ends_of_its_sentence() -> None:
    lengths = np.array([2, 3])  # rows 0-3 and 4-8
    assert around(np.array([[1], [5], [6]]), lengths, 2).tolist() == [[0, 0, 1, 2, 3], [4, 4, 5, 6, 7], [4, 5, 6, 7, 8]]


def test_a_third_of_the_tokens_are_of_words_with_several_tags(parts: Split) -> None:
    tags: defaultdict[str, set[str]] = defaultdict(set)
    counts: Counter[str] = Counter()
    for tree in parts.train:
        for leaf in tree.preterminals():
            tags[leaf.word.lower()].add(leaf.label)
            counts[leaf.word.lower()] += 1
    assert sum(count for word, count in counts.items() if len(tags[word]) > 1) >= 0.33 * counts.total()


def test_vocabulary_of_the_learned_grammar_stays_small(grammar: PCFG) -> None:
    assert 500 <= grammar.n_words < 700


def test_inside_outside_parses_well_but_not_perfectly(parts: Split, grammar: PCFG) -> None:
    charts = inside_outside(grammar, [tree.words() for tree in parts.test])
    assert sum(chart.log_prob == -np.inf for chart in charts) <= 10
    assert 85 <= span_f1(parts.test, [labelled_recall(chart) for chart in charts], "PB").sentence <= 95


def test_word_and_eos_tell_less_than_half_of_the_tree(parts: Split, grammar: PCFG) -> None:
    assert 25 < f1_from_words(grammar, parts, eos_rows, N_FEW) < 45


@pytest.mark.slow
def test_words_around_tell_far_more_of_the_tree_than_word_and_eos(parts: Split, grammar: PCFG) -> None:
    border = f1_from_words(grammar, parts, eos_rows, len(parts.train))
    assert border < 45
    assert f1_from_words(grammar, parts, words_around(2), len(parts.train)) > border + 15
    assert f1_from_words(grammar, parts, words_around(5), len(parts.train)) > border + 15


@pytest.mark.slow
def test_words_around_tell_more_of_the_marginals_than_the_border_words(parts: Split, grammar: PCFG) -> None:
    def corpus(trees: Sequence[Tree]) -> Corpus:
        charts = inside_outside(grammar, [tree.words() for tree in trees])
        return corpus_of(grammar, trees, [chart.marginals.max(axis=-1) if chart.log_prob > -np.inf else None
                                          for chart in charts])

    train, test = corpus(parts.train[:1500]), corpus(parts.test)

    def correlation(width: int, reach: int) -> float:
        inputs, targets = [], []
        for part in (train, test):
            wanted = part.span_targets(width)
            rows = around(span_rows(part.lengths, width), part.lengths, reach)[~np.isnan(wanted)]
            inputs.append(one_hot(grammar, part, rows))
            targets.append(wanted[~np.isnan(wanted)])
        # A penalty of 1 in place of none: the columns of rare words would be fitted to single spans.
        fitted = Ridge(alpha=1.0, solver="sparse_cg").fit(inputs[0], targets[0])
        return pearson(targets[1], fitted.predict(inputs[1]))

    for width in (2, 3, 4, 5):
        assert correlation(width, 1) > correlation(width, 0) + 0.05
