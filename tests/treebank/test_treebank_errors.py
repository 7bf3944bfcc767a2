"""Whatever a treebank source is, reading it gives trees or one clear TreebankError."""

import os
import zipfile

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pcfg_artifact.errors import TreebankError
from pcfg_artifact.treebank.reading import read_treebank


def refused(source, message):
    with pytest.raises(TreebankError) as error:
        read_treebank(source)
    assert message in str(error.value)


def make(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def test_missing_path(tmp_path):
    refused(tmp_path / "nowhere", "no treebank at")
    refused("", "the treebank has no name")


def test_empty_file(tmp_path):
    (tmp_path / "empty.mrg").touch()
    refused(tmp_path / "empty.mrg", "empty.mrg, line 1: the text is empty")


def test_empty_folder_and_folder_without_treebank_files(tmp_path):
    refused(tmp_path, "holds no treebank file; expected names ending in .mrg, .tree, .trees, .ptb, .psd")
    (tmp_path / "notes.txt").write_text("see (NN x)")
    refused(tmp_path, "holds no treebank file")


def test_empty_zip_file_and_zip_file_without_treebank_files(tmp_path):
    refused(make(tmp_path / "a.zip", {}), "holds no treebank file")
    refused(make(tmp_path / "b.zip", {"notes.txt": "see (NN x)", "folder.mrg/": ""}), "holds no treebank file")


def test_file_called_zip_that_is_none(tmp_path):
    (tmp_path / "trees.zip").write_text("(NN x)")
    refused(tmp_path / "trees.zip", "is not a zip file")


def test_damaged_zip_file(tmp_path):
    path = make(tmp_path / "a.zip", {"a.mrg": "(NN x)" * 1000})
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(data)
    refused(path, "cannot read a.mrg in")


def test_non_utf8_names_file_and_line(tmp_path):
    (tmp_path / "a.mrg").write_bytes(b"(NN x)\n(NN caf\xe9)\n")
    refused(tmp_path, "a.mrg, line 2: byte 0xe9 is not UTF-8 text")


def test_utf16_is_refused(tmp_path):
    for encoding, message in (("utf-16", "is not UTF-8"), ("utf-16-le", "NUL")):
        (tmp_path / "a.mrg").write_text("(NN x)", encoding=encoding)
        refused(tmp_path, message)


def test_only_traces_is_no_usable_tree(tmp_path):
    (tmp_path / "a.mrg").write_text("( (S (-NONE- *)) )")
    refused(tmp_path, "holds no usable tree: 1 read, 0 bad")


def test_only_bad_trees_is_an_error_even_when_skipping(tmp_path):
    (tmp_path / "a.mrg").write_text("(S (NN x)\n(S (NN y)\n")
    with pytest.raises(TreebankError, match="no usable tree: 0 read, 2 bad .first: a.mrg, line 1"):
        read_treebank(tmp_path, skip_bad_trees=True)


def test_unreadable_file(tmp_path, monkeypatch):
    (tmp_path / "a.mrg").symlink_to(tmp_path / "gone.mrg")
    refused(tmp_path, "cannot read")
    # Permissions are not enforced for every user, so the refusal is injected.
    (tmp_path / "a.mrg").unlink()
    (tmp_path / "a.mrg").write_text("(NN x)")

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.read_bytes", denied)
    refused(tmp_path, "a.mrg: Permission denied")


def test_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.mrg")
    refused(tmp_path, "holds no treebank file")
    refused(tmp_path / "pipe.mrg", "neither a file nor a folder")


def test_nltk_sample_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    monkeypatch.setattr("nltk.data.path", [])  # where this machine, or an earlier test, has it
    refused("nltk", "NLTK's treebank sample is not on this machine")


FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SOUP = st.one_of(st.binary(max_size=300), st.text("()() \n\tabNP-|=é\u200a\0", max_size=120).map(str.encode))


def words_or_message(path, skip_bad_trees=False):
    try:
        return [word for tree in read_treebank(path, skip_bad_trees=skip_bad_trees).trees for word in tree.words()]
    except TreebankError as error:
        return str(error)


@FUZZ
@given(data=SOUP, skip_bad_trees=st.booleans(), name=st.sampled_from(["a.mrg", "a.zip"]))
def test_byte_soup_gives_trees_or_a_treebank_error(tmp_path, data, skip_bad_trees, name):
    (tmp_path / name).write_bytes(data)
    words = words_or_message(tmp_path / name, skip_bad_trees)
    assert words
    assert isinstance(words, str) or all(word and not set(word) & set("() \n\t\0") for word in words)


@FUZZ
@example(position=688, value=0, cut=False)  # a file without a name
@given(position=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.booleans())
def test_damaged_zip_files_give_trees_or_a_treebank_error(tmp_path, position, value, cut):
    path = make(tmp_path / "a.zip", {"b/a.mrg": "(S (NN x) (NN y))\n" * 10, "c.mrg": "(NN z)"})
    data = bytearray(path.read_bytes())
    position %= len(data)
    data[position] = value
    path.write_bytes(data[: position + 1] if cut else data)
    assert words_or_message(path)
