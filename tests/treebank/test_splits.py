"""Which trees are training and which are test trees."""

import pytest

from pcfg_artifact.errors import TreebankError
from pcfg_artifact.treebank.reading import Treebank
from pcfg_artifact.treebank.splits import split
from pcfg_artifact.treebank.tree import Tree


def treebank(source, **n_trees):
    documents = {name: [Tree("NN", (), f"{name}:{i}") for i in range(n)] for name, n in n_trees.items()}
    return Treebank(source, documents, sum(n_trees.values()), {}, (), "")


def words(trees):
    return [tree.word for tree in trees]


def test_every_twentieth_document_is_test():
    parts = split(treebank("folder", **{f"d{i:02d}": 2 for i in range(41)}))
    assert words(parts.test) == ["d19:0", "d19:1", "d39:0", "d39:1"]
    assert len(parts.train) == 78
    assert parts.how == "every 20th document is test"


@pytest.mark.parametrize("documents", [{"file": 45}, {f"d{i}": 15 for i in range(3)}])
def test_with_few_documents_every_twentieth_tree_is_test(documents):
    bank = treebank("file", **documents)
    parts = split(bank)
    assert words(parts.test) == words([bank.trees[19], bank.trees[39]])
    assert words(parts.train) == [word for i, word in enumerate(words(bank.trees)) if i not in (19, 39)]
    assert parts.how == "every 20th tree is test"


def test_twenty_trees_are_the_least_that_can_be_split():
    assert words(split(treebank("file", d=20)).test) == ["d:19"]
    with pytest.raises(TreebankError, match="file has 19 trees, expected at least 20"):
        split(treebank("file", d=19))


@pytest.mark.parametrize(("source", "name"), [
    ("some/wsj", "{:02d}/wsj_{:02d}01.mrg"), ("treebank_3", "parsed/mrg/wsj/{:02d}/wsj_{:02d}01.mrg"),
    ("copy.zip", "WSJ/{:02d}/WSJ_{:02d}01.MRG"), ("wsj", "{:02d}/{:02d}.tree"),
    ("wsj.zip", "wsj/{:02d}/all{:02d}.tree")])
def test_wall_street_journal_sections(source, name):
    names = {section: name.format(section, section) for section in range(25)}
    bank = treebank(source, **{names[section]: 3 for section in range(25)}, **{"brown/cf/cf01.mrg": 7})
    parts = split(bank)
    assert words(parts.train) == [f"{names[section]}:{i}" for section in range(2, 22) for i in range(3)]
    assert words(parts.test) == [f"{names[22]}:{i}" for i in range(3)]
    assert parts.how == "WSJ sections 02-21 train, 22 test"


def test_folders_that_only_look_like_sections_are_not_wsj():
    bank = treebank("corpus", **{f"{section:02d}/doc.tree": 1 for section in range(25)})
    assert split(bank).how == "every 20th document is test"


def test_wsj_without_its_test_section_is_split_by_documents():
    present = [section for section in range(25) if section not in (7, 22)]
    bank = treebank("wsj", **{f"{section:02d}/wsj_{section:02d}.mrg": 1 for section in present})
    assert split(bank).how == "every 20th document is test"
