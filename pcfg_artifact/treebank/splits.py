"""Train and test: WSJ sections or a dataset's own splits where they exist, else every twentieth document or tree."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pcfg_artifact.errors import TreebankError
from pcfg_artifact.treebank.arrow import TEST, TRAIN
from pcfg_artifact.treebank.reading import Treebank
from pcfg_artifact.treebank.tree import Tree

EVERY = 20
WSJ_TRAIN = tuple(f"{section:02d}" for section in range(2, 22))
WSJ_TEST = "22"
# Trees in the third release of the Penn Treebank: what a complete copy gives.
WSJ_TRAIN_TREES, WSJ_TEST_TREES = 39_832, 1_700


@dataclass(frozen=True)
class Split:
    """Training and test trees, and `how` they were chosen, in words for the manifest."""

    train: Sequence[Tree]
    test: Sequence[Tree]
    how: str


def split(treebank: Treebank) -> Split:
    """WSJ 02-21 / 22 if the source has these sections; else the splits train / test of a saved dataset that has both;
    else document 20, 40, ... is test; else tree 20, 40, ...

    Trees are counted instead of documents when there are fewer than 20 documents, as in a single file.
    """
    sections = wsj_sections(treebank)
    if WSJ_TEST in sections and any(section in sections for section in WSJ_TRAIN):
        train = [tree for section in WSJ_TRAIN for tree in sections.get(section, ())]
        return Split(train, sections[WSJ_TEST], "WSJ sections 02-21 train, 22 test")
    if {TRAIN, TEST} <= treebank.documents.keys():
        train, test = list(treebank.documents[TRAIN]), list(treebank.documents[TEST])
        return Split(train, test, f"the dataset's own splits {TRAIN} and {TEST}")
    documents = list(treebank.documents.values())
    how = f"every {EVERY}th document is test"
    if len(documents) < EVERY:
        documents = [[tree] for tree in treebank.trees]
        how = f"every {EVERY}th tree is test"
    if len(documents) < EVERY:
        raise TreebankError(f"{treebank.source} has {len(documents)} trees, expected at least {EVERY} to split into "
                            f"training and test trees; add trees, or use all of them without a split")
    train = [tree for i, trees in enumerate(documents) if i % EVERY != EVERY - 1 for tree in trees]
    test = [tree for trees in documents[EVERY - 1 :: EVERY] for tree in trees]
    return Split(train, test, how)


def wsj_sections(treebank: Treebank) -> dict[str, list[Tree]]:
    """Trees by Wall Street Journal section: documents in a two-digit folder below `wsj`, or called wsj_*."""
    sections: dict[str, list[Tree]] = {}
    for name, trees in treebank.documents.items():
        path = PurePosixPath(Path(treebank.source).name, name)
        is_wsj = path.name.lower().startswith("wsj_") or path.parent.parent.name.lower() == "wsj"
        if is_wsj and re.fullmatch(r"\d\d", path.parent.name):
            sections.setdefault(path.parent.name, []).extend(trees)
    return sections


def wsj_problems(sections: Mapping[str, int], train: tuple[str, ...], test: str, n_train: int,
                 n_test: int) -> list[str]:
    """Whether a Wall Street Journal is the complete one; `sections`: section -> trees found.

    A source without any of these sections is another treebank, and not judged here.
    """
    if not any(section in sections for section in (*train, test)):
        return []
    missing = [section for section in (*train, test) if not sections.get(section)]
    counts = ", ".join(f"{section}: {sections.get(section, 0):,}" for section in (*train, test))
    found = sum(sections.get(section, 0) for section in train), sections.get(test, 0)
    if found == (n_train, n_test):
        return []
    what = f"sections {', '.join(missing)} are missing" if missing else "some sections are incomplete"
    return [f"the Penn Treebank is not complete, {what}: {found[0]:,} trees in sections {train[0]}-{train[-1]} and "
            f"{found[1]:,} in section {test}, expected {n_train:,} and {n_test:,} (found {counts}); mount the whole "
            f"wsj folder of the treebank's third release, or judge it as another treebank with the profile reduced"]
