"""Folders that `save_to_disk` of the library datasets wrote (Dataset or DatasetDict), as a treebank or as sentences.

Trees are read from the column `tree`, else `text`, one or more bracketed trees a row.  Sentences are read from `text`
(words separated by blanks), else `words` (lists of words), else the words of `tree`, cleaned.  The folder of a single
split works too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcfg_artifact.errors import TreebankError
from pcfg_artifact.treebank.brackets import parse_trees
from pcfg_artifact.treebank.cleaning import Cleaner

if TYPE_CHECKING:
    from datasets import Dataset

TREE_COLUMNS, SENTENCE_COLUMNS = ("tree", "text"), ("text", "words", "tree")
TRAIN, TEST = "train", "test"  # where a DatasetDict has both, they are the split
ONLY = "dataset"  # the document of a Dataset, which may have lost the name of its split
ROWS = 1_000  # read at once


def is_saved_dataset(path: Path) -> bool:
    return (path / "dataset_dict.json").is_file() or all(
        (path / name).is_file() for name in ("state.json", "dataset_info.json"))


def documents(path: Path) -> tuple[list[str], Iterator[bytes]]:
    """Names of the splits, and their trees as text with one row a line, so that errors name the row, from 1."""
    splits = _load(path)
    columns = [_column(split, TREE_COLUMNS, f"{path}, {name}") for name, split in splits.items()]
    return list(splits), ("".join(f"{row}\n" for row in _texts(split, column, f"{path}, {name}")).encode()
                          for (name, split), column in zip(splits.items(), columns, strict=True))


def sentences(path: Path) -> Iterator[list[str]]:
    """The words of every row, split after split."""
    for name, split in _load(path).items():
        where = f"{path}, {name}"
        column = _column(split, SENTENCE_COLUMNS, where)
        if column == "words":
            yield from _word_lists(split, where)
        elif column == "text":
            yield from (row.split() for row in _texts(split, column, where))
        else:
            cleaner = Cleaner()
            for n, row in enumerate(_texts(split, column, where), start=1):
                cleaned = (cleaner.clean(tree) for tree in parse_trees(row, f"{where}, row {n}")[0])
                yield from (tree.words() for tree in cleaned if tree is not None)


def _load(path: Path) -> dict[str, Dataset]:
    import datasets  # here, because it takes a second that other sources need not pay

    try:
        found = datasets.load_from_disk(str(path))
    # Which of these a damaged folder raises depends on the file.
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TreebankError(f"cannot read the dataset in {path} ({error}); expected a whole folder as save_to_disk of "
                            f"the library datasets {datasets.__version__} or earlier writes it") from error
    splits = dict(found) if isinstance(found, datasets.DatasetDict) else {ONLY: found}
    return {name: split.with_format("arrow") for name, split in splits.items()}


def _column(split: Dataset, names: Sequence[str], where: str) -> str:
    column = next((name for name in names if name in split.column_names), None)
    if column is None:
        raise TreebankError(f"{where}: the columns are {', '.join(split.column_names) or 'none'}; expected one that is "
                            f"called {' or '.join(names)}")
    found, expected = str(split.features.arrow_schema.field(column).type), "text"
    is_right = found in ("string", "large_string")
    if column == "words":
        expected, is_right = "lists of words", "list<" in found and "string" in found
    if not is_right:
        raise TreebankError(f"{where}: the column {column} holds {found}, expected {expected}")
    return column


def _values(split: Dataset, column: str, where: str) -> Iterator[Any]:
    n = 0
    for table in split.select_columns([column]).iter(batch_size=ROWS):
        for value in table[column].to_pylist():
            n += 1
            if value is None:
                raise TreebankError(f"{where}: row {n} has no {column}; leave such rows out of the dataset")
            yield value


def _word_lists(split: Dataset, where: str) -> Iterator[list[str]]:
    """The words of every row; a word with white space is refused, since trees and tables of it could not be read."""
    for n, words in enumerate(_values(split, "words", where), start=1):
        for word in words:
            if word is None or word.split() != [word] or "\0" in word:
                raise TreebankError(f"{where}: row {n} has the word {word!r}, expected text without white space; join "
                                    f"its parts by _, or leave the row out")
        yield words


def _texts(split: Dataset, column: str, where: str) -> Iterator[str]:
    """Every row on one line, which changes no tree and no words."""
    return (value.replace("\n", " ").replace("\r", " ") for value in _values(split, column, where))
