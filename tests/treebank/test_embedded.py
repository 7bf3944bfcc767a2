"""The embedded treebank: the same every time, Penn-style, English-like, and richer than any PCFG of it."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from embedded_treebank.generator import Generator, generate_treebank, read_source
from pcfg_artifact.approximation.restriction import restrict, select_symbols
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.treebank.binarise import binarise, unbinarise
from pcfg_artifact.treebank.brackets import parse_trees
from pcfg_artifact.treebank.cleaning import Cleaner
from pcfg_artifact.treebank.reading import read_treebank, source_hash
from pcfg_artifact.treebank.splits import split

# Recorded results name it.
DIGEST = "bb5c5c20ab75a54cb2963d85609f92d6d41b2419ef773d936b98999014d1a1d2"
PENN_ROOTS = {"S", "SINV", "SQ", "SBARQ", "NP", "FRAG"}
PENN_LABELS = PENN_ROOTS | {"VP", "PP", "SBAR", "ADJP", "ADVP", "WHNP", "WHADVP", "QP", "PRN", "PRT", "INTJ"}


@pytest.fixture(scope="module")
def bank():
    return read_treebank("embedded")


@pytest.fixture(scope="module")
def trees(bank):
    return bank.trees


@pytest.fixture(scope="module")
def regular():
    """The same sentences before anything irregular happens to their trees."""
    source = read_source()
    never = dict.fromkeys(("renamed", "adopted", "grouped"), 0.0)
    generator = Generator({**source, "irregular": source["irregular"] | never})
    return [generator.sentence(i) for i in range(source["n_trees"])]


def test_content_is_the_recorded_one(bank):
    assert bank.sha256 == DIGEST


def test_the_shipped_trees_are_those_of_the_generator(bank, trees):
    assert generate_treebank() == trees
    assert (bank.n_raw, list(bank.documents)) == (4000, ["embedded"])
    assert source_hash("embedded") == bank.sha256


def test_a_sentence_depends_on_its_number_alone(trees):
    generator = Generator(read_source())
    assert [generator.sentence(i) for i in (3999, 7, 2000)] == [trees[i] for i in (3999, 7, 2000)]


def test_trees_are_clean_and_survive_writing_and_reading(trees):
    cleaner = Cleaner()
    assert [cleaner.clean(tree) for tree in trees] == trees
    assert not any(cleaner.counts.values())
    assert parse_trees("\n".join(map(str, trees)), "embedded") == (trees, [])


def test_sizes_are_those_the_smoke_run_needs(bank, trees):
    labels = {(node.is_preterminal, node.label) for tree in trees for node in binarise(tree, "vm").preorder()}
    n_preterminals = sum(is_preterminal for is_preterminal, _ in labels)
    assert n_preterminals >= 50
    assert len(labels) - n_preterminals >= 60
    lengths = np.array([len(tree.words()) for tree in trees])
    assert 15 <= lengths.mean() <= 17
    assert lengths.max() <= 60
    assert np.mean(lengths > 40) < 0.005  # inference costs the cube of the length
    counts = Counter(word.lower() for tree in trees for word in tree.words())
    assert 300 <= len(counts) <= 700
    assert sum(count > 5 for count in counts.values()) >= 0.85 * len(counts)
    parts = split(bank)
    assert (len(parts.train), len(parts.test), parts.how) == (3800, 200, "every 20th tree is test")
    assert len({tuple(tree.words()) for tree in trees}) > 0.95 * len(trees)


def test_labels_are_those_of_the_penn_treebank(trees):
    assert {tree.label for tree in trees} == PENN_ROOTS
    assert {node.label for tree in trees for node in tree.preorder() if not node.is_preterminal} == PENN_LABELS
    # Flat where the Penn Treebank is flat: S and VP with four and more children occur.
    assert {len(node.children) for tree in trees for node in tree.preorder() if node.label == "S"} >= {1, 2, 3, 4, 5}


def test_word_frequencies_fall_like_zipf(trees):
    counts = np.array(sorted(Counter(word for tree in trees for word in tree.words()).values(), reverse=True))
    counts = counts[: len(counts) // 2]  # a closed vocabulary ends where English goes on
    log_rank, log_count = np.log(np.arange(1, len(counts) + 1)), np.log(counts)
    slope = np.polyfit(log_rank, log_count, 1)[0]
    assert -1.2 < slope < -0.7  # English: about -1
    assert np.corrcoef(log_rank, log_count)[0, 1] < -0.97


def test_sentences_begin_with_a_capital_and_articles_fit_the_next_word(trees):
    for tree in trees:
        words = [word for word in tree.words() if word != "``"]
        assert words[0][0].isupper()
        for word, following in pairwise(words):
            if word.lower() in ("a", "an"):
                is_vowel = following[0].lower() in "aeiou8" and following not in ("university", "useful")
                assert (word.lower() == "an") == is_vowel, words


def test_irregular_trees_have_the_words_and_brackets_of_the_regular_ones_and_few_more(trees, regular):
    assert [tree.words() for tree in trees] == [tree.words() for tree in regular]
    assert 0.4 < np.mean([tree != other for tree, other in zip(trees, regular, strict=True)]) < 0.95
    spans, before = ([set(tree.spans()) for tree in group] for group in (trees, regular))
    assert all(old <= new for old, new in zip(before, spans, strict=True))
    assert 1.01 < sum(map(len, spans)) / sum(map(len, before)) < 1.05


def test_twenty_interminals_derive_most_sentences_only_with_the_irregular_rules(trees, regular):
    def derived(trees):
        grammar = learn_pcfg(trees[200:])
        few = restrict(grammar, select_symbols(grammar, 20, None)[0])
        charts = inside_outside(few, [tree.words() for tree in trees[:200]])
        return np.mean([chart.log_prob > -np.inf for chart in charts])

    assert derived(regular) < 0.3
    assert derived(trees) > 0.85


# ---- what a PCFG does not know ---------------------------------------------------------------------------------------


def number_of(np_node):
    """Grammatical number of a subject, read from the tree alone; None where the tree does not tell."""
    if any(child.label == "CC" for child in np_node.children):
        return "pl"
    first, last = np_node.children[0], np_node.children[-1]
    if first.label == "NP" and first.children[-1].label != "POS":
        return number_of(first)
    if last.label == "PRP":
        return {"i": "i", "he": "sg", "she": "sg", "it": "sg"}.get(last.word.lower(), "pl")
    return {"NN": "sg", "NNP": "sg", "CD": "sg", "NNS": "pl", "JJS": "pl"}.get(last.label)


def number_asked_by(leaf):
    if leaf.word.lower() in ("was", "were", "am"):
        return {"was": {"sg", "i"}, "were": {"pl"}, "am": {"i"}}[leaf.word.lower()]
    return {"VBZ": {"sg"}, "VBP": {"pl", "i"}}.get(leaf.label)


def agreements(trees):
    """Whether subject and verb agree, for every clause that shows it: (kind of clause, agrees)."""
    for tree in trees:
        for node in tree.preorder():
            labels = [child.label for child in node.children]
            if node.label in ("S", "SQ") and "NP" in labels:
                subject = next((c for c, after in zip(node.children, [*labels[1:], ""], strict=True)
                                if c.label == "NP" and after in ("VP", "ADVP", "PRN", "ADJP")), None)
                verb = node.children[0] if node.label == "SQ" else next(
                    (c.preterminals()[0] for c in node.children if c.label == "VP"), None)
                kind = "inverted" if node.label == "SQ" else "plain"
            elif node.label == "NP" and labels == ["NP", "SBAR"] and node.children[1].children[-1].label == "S":
                clause = node.children[1].children[-1]
                subject, kind = node.children[0], "relative"
                verb = clause.preterminals()[0] if len(clause.children) == 1 else None
            else:
                continue
            if subject is None or verb is None:
                continue
            number, asked = number_of(subject), number_asked_by(verb)
            if number is not None and asked is not None:
                yield kind, number in asked


def test_subject_and_verb_agree_in_every_clause(regular):
    found = Counter(agreements(regular))
    assert [kind for kind, agrees in found if not agrees] == []
    assert found["plain", True] > 1500
    assert found["inverted", True] > 50
    assert found["relative", True] > 60


def test_a_learned_pcfg_does_not_keep_the_agreement(regular):
    # The same test on sentences drawn from the grammar: at chance, not at 100%.
    drawn = [unbinarise(tree) for tree in sample_trees(learn_pcfg(regular), 1000, seed=0, max_length=60)]
    agree = [agrees for _, agrees in agreements(drawn)]
    assert len(agree) > 300
    assert 0.4 < np.mean(agree) < 0.8


def test_relative_pronoun_depends_on_the_head(regular):
    heads = {"who": Counter(), "which": Counter()}
    for tree in regular:
        for node in tree.preorder():
            if node.label == "NP" and [child.label for child in node.children] == ["NP", "SBAR"]:
                pronoun = node.children[1].preterminals()[0].word
                if pronoun in heads:
                    heads[pronoun][node.children[0].words()[-1]] += 1
    assert min(sum(counts.values()) for counts in heads.values()) > 30
    assert not set(heads["who"]) & set(heads["which"])


def test_any_needs_a_negation_or_a_question(trees):
    with_any = [tree.words() for tree in trees if "any" in tree.words()]
    assert len(with_any) > 50
    assert all({"not", "n't", "?"} & set(words) for words in with_any)


def main_verb(tree):
    return next(child for child in tree.children if child.label == "VP").preterminals()[0]


def test_fronted_time_words_fix_the_tense(regular):
    fronted = {"Yesterday": [], "Tomorrow": []}
    for tree in regular:
        first = tree.words()[0]
        if first in fronted and tree.label == "S":
            fronted[first].append(main_verb(tree))
    assert min(map(len, fronted.values())) > 8
    assert all(verb.word == "will" for verb in fronted["Tomorrow"])
    assert not any(verb.label in ("VBZ", "VBP") or verb.word == "will" for verb in fronted["Yesterday"])


def test_verbs_prefer_their_subjects(regular):
    amounts = {"price", "prices", "cost", "costs", "increase", "increases", "profit", "profits", "rate", "rates", "tax",
               "taxes", "budget", "budgets", "dose", "doses", "interest", "it", "they"}
    found = {True: Counter(), False: Counter()}
    for tree in regular:
        for node in tree.preorder():
            for subject, predicate in pairwise(node.children):
                if (node.label, subject.label, predicate.label) != ("S", "NP", "VP"):
                    continue
                verb = predicate.preterminals()[0].word
                head = (subject.children[0] if subject.children[0].label == "NP" else subject).words()[-1].lower()
                found[verb in ("rose", "rises", "rise", "fell", "falls", "fall")][head in amounts] += 1
    shares = {rising: counts[True] / counts.total() for rising, counts in found.items()}
    assert found[True].total() > 50
    assert shares[True] > 0.9
    assert shares[False] < 0.5


def test_the_topic_colours_the_whole_sentence(trees):
    # Words of one topic meet more often than independence predicts, words of two topics less often.
    business = {"sponsor", "company", "profit", "market", "bank"}
    town = {"coach", "village", "house", "park", "child"}
    sets = [set(tree.words()) for tree in trees]
    n_business, n_town = (sum(bool(words & topic) for words in sets) for topic in (business, town))
    both = sum(bool(words & business) and bool(words & town) for words in sets)
    assert both < 0.5 * n_business * n_town / len(sets)
