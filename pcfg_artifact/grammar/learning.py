"""A PCFG from a treebank, by relative frequency."""

from collections import Counter
from collections.abc import Iterable, Sequence

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.unknown import signature
from pcfg_artifact.system.progress import ProgressBar, no_progress
from pcfg_artifact.treebank.binarise import binarise
from pcfg_artifact.treebank.tree import Tree


def learn_pcfg(trees: Sequence[Tree], variant: str = "vm", cutoff: int = 5,
               progress: ProgressBar = no_progress) -> PCFG:
    """The unsmoothed relative-frequency PCFG of cleaned treebank trees.

    Words seen `cutoff` times or less become signatures.  Symbols are numbered by falling frequency, words too.
    """
    if not trees:
        raise GrammarError("no tree to learn from; check the treebank and its split")
    known = frequent_words(trees, cutoff)
    roots: Counter[str] = Counter()
    binary: Counter[tuple[str, str, str]] = Counter()
    lexical: Counter[tuple[str, str]] = Counter()
    for tree in progress(trees):
        root = binarise(tree, variant)
        roots[root.label] += 1
        position = 0
        for node in root.preorder():
            if node.word is not None:
                word = node.word if node.word in known else signature(node.word, position, known)
                lexical[node.label, word] += 1
                position += 1
            else:
                left, right = node.children
                binary[node.label, left.label, right.label] += 1
    return pcfg_from_counts(roots, binary, lexical)


def frequent_words(trees: Iterable[Tree], cutoff: int) -> frozenset[str]:
    """Words that occur more than `cutoff` times: the vocabulary that is kept as it is."""
    counts = Counter(word for tree in trees for word in tree.words())
    return frozenset(word for word, count in counts.items() if count > cutoff)


def pcfg_from_counts(roots: Counter[str], binary: Counter[tuple[str, str, str]],
                     lexical: Counter[tuple[str, str]]) -> PCFG:
    """Relative frequencies of counted rules; symbols and words in order of falling count, then by name."""
    symbols: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for (a, _, _), count in binary.items():
        symbols[a] += count
    for (a, word), count in lexical.items():
        symbols[a] += count
        words[word] += count
    n_trees = roots.total()
    symbol_rank = {a: rank for rank, a in enumerate(sorted(symbols, key=lambda a: (-symbols[a], a)))}
    word_rank = {w: rank for rank, w in enumerate(sorted(words, key=lambda w: (-words[w], w)))}
    binary_order = sorted(binary, key=lambda r: symbol_rank[r[0]])
    lexical_order = sorted(lexical, key=lambda r: symbol_rank[r[0]])
    grammar = PCFG.from_rules(
        root={a: count / n_trees for a, count in roots.items()},
        binary=[(*rule, binary[rule] / symbols[rule[0]]) for rule in binary_order],
        lexical=[(*rule, lexical[rule] / symbols[rule[0]]) for rule in lexical_order],
        symbol_counts=symbols, word_counts=words)
    return grammar.with_word_order(sorted(range(grammar.n_words), key=lambda w: word_rank[grammar.words[w]]))
