"""A folder that datasets' save_to_disk wrote serves as a treebank and as sentences; what does not fit is refused."""

import json
import os
import shutil

import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.errors import TreebankError
from pcfg_artifact.tools.arguments import read_sentences
from pcfg_artifact.treebank.reading import read_treebank, source_hash
from pcfg_artifact.treebank.splits import split

RUNS, SLEEPS = "(S (NP (PRP she)) (VP (VBZ runs)))", "( (S (NP-SBJ (NNS cats)) (VP (VBP sleep) (NP (-NONE- *)))) )"


@pytest.fixture(scope="module")
def datasets():
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    return pytest.importorskip("datasets")


@pytest.fixture
def save(datasets, tmp_path):
    """save(name, columns, or split=columns, ...) -> the folder."""
    def function(name, columns=None, **splits):
        made = datasets.Dataset.from_dict(columns) if columns is not None else datasets.DatasetDict(
            {split: datasets.Dataset.from_dict(columns) for split, columns in splits.items()})
        made.save_to_disk(str(tmp_path / name))
        return tmp_path / name
    return function


@pytest.mark.parametrize("column", ["tree", "text"])
def test_the_trees_of_a_dataset_are_those_of_a_file(save, tmp_path, column):
    rows = [RUNS, SLEEPS.replace(" (VP", "\n  (VP")] * 10
    (tmp_path / "file.mrg").write_text("\n".join(rows))
    bank = read_treebank(save("bank", {column: rows, "id": list(range(20))}))
    expected = read_treebank(tmp_path / "file.mrg")
    assert bank.trees == expected.trees
    assert (bank.n_raw, bank.cleaning) == (expected.n_raw, expected.cleaning)
    assert split(bank).how == "every 20th tree is test"


def test_splits_called_train_and_test_are_the_split_and_others_are_unused(save):
    folder = save("bank", train={"tree": [RUNS] * 3}, validation={"tree": [RUNS]}, test={"tree": [SLEEPS] * 2})
    parts = split(read_treebank(folder))
    assert [len(parts.train), len(parts.test)] == [3, 2]
    assert parts.test[0].words() == ["cats", "sleep"]
    assert parts.how == "the dataset's own splits train and test"


def test_without_both_names_every_20th_tree_is_test(save):
    parts = split(read_treebank(save("bank", train={"tree": [RUNS] * 30}, dev={"tree": [SLEEPS] * 10})))
    assert (len(parts.train), len(parts.test), parts.how) == (38, 2, "every 20th tree is test")


def test_one_split_of_a_saved_dict_can_be_named(save):
    folder = save("bank", train={"tree": [RUNS] * 3}, test={"tree": [SLEEPS] * 2})
    assert read_treebank(folder / "test").n_trees == 2


def test_the_hash_covers_the_trees_and_not_the_place(save, tmp_path):
    one, other = save("one", {"tree": [RUNS, SLEEPS]}), save("other", {"tree": [RUNS, RUNS]})
    assert source_hash(one) == read_treebank(one).sha256 != source_hash(other)
    shutil.copytree(one, tmp_path / "elsewhere")
    assert source_hash(tmp_path / "elsewhere") == source_hash(one)
    # A selection is the same file on disk with a list of rows beside it.
    selected = save("all", {"tree": [RUNS, SLEEPS, RUNS]})
    import datasets
    datasets.load_from_disk(str(selected)).select([0, 1]).save_to_disk(str(tmp_path / "selected"))
    assert source_hash(tmp_path / "selected") == source_hash(one)


@pytest.mark.parametrize("columns", [
    {"text": ["she  runs", "cats sleep"]}, {"words": [["she", "runs"], ["cats", "sleep"]]}, {"tree": [RUNS, SLEEPS]},
    {"text": ["she runs", "cats sleep"], "tree": [SLEEPS, RUNS]}])
def test_sentences_are_read_from_text_or_words_or_trees(save, columns):
    assert list(read_sentences(str(save("corpus", columns)))) == [["she", "runs"], ["cats", "sleep"]]


@pytest.mark.parametrize("word", ["New York", "New\tYork", "", "\0", None])
def test_words_that_no_text_file_could_hold_are_refused(word, save):
    folder = save("corpus", {"words": [["she", "runs"], ["in", word]]})
    with pytest.raises(TreebankError, match="row 2 has the word"):
        list(read_sentences(str(folder)))


def test_parse_takes_a_dataset_for_a_file_of_sentences(save, tmp_path, capsys):
    (tmp_path / "rules.txt").write_text("ROOT -> S 1\nS -> A B 1\nA -> 'she' 1\nB -> 'runs' 1\n")
    folder = save("corpus", {"text": ["she runs", "", "she runs"]})
    assert main(["parse", "--grammar", str(tmp_path / "rules.txt"), str(folder)]) == 0
    assert capsys.readouterr().out == "(S (A she) (B runs))\n\n(S (A she) (B runs))\n"


def test_learn_takes_a_dataset_for_a_treebank(save, tmp_path):
    folder = save("bank", train={"tree": [RUNS] * 9}, test={"tree": [RUNS]})
    assert main(["learn", "--treebank", str(folder), "--out", str(tmp_path / "g"), "--cutoff", "0"]) == 0


@pytest.mark.parametrize(("columns", "message"), [
    ({"label": ["a"]}, "the columns are label; expected one that is called tree or text"),
    ({"tree": [1, 2]}, "the column tree holds int64, expected text"),
    ({"tree": [[RUNS]]}, "expected text"),
    ({"tree": [RUNS, None]}, "row 2 has no tree"),
    ({"tree": [RUNS, "(S (NP she)"]}, "line 2"),
    ({"tree": [""]}, "empty"),
])
def test_what_is_no_column_of_trees_is_refused(save, columns, message):
    with pytest.raises(TreebankError, match=message):
        read_treebank(save("bank", columns))


@pytest.mark.parametrize("damage", ["cut", "no data", "no column", "other json"])
def test_a_damaged_dataset_is_refused(save, damage):
    folder = save("bank", {"tree": [RUNS] * 5})
    [data] = folder.glob("*.arrow")
    info = json.loads((folder / "dataset_info.json").read_text())
    if damage == "cut":
        data.write_bytes(data.read_bytes()[:100])
    elif damage == "no data":
        data.unlink()
    elif damage == "no column":
        (folder / "dataset_info.json").write_text(json.dumps({**info, "features": {"x": info["features"]["tree"]}}))
    else:
        (folder / "state.json").write_text("[]")
    with pytest.raises(TreebankError, match="cannot read the dataset"):
        read_treebank(folder)
