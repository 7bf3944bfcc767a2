"""Treebanks of other languages and layouts: a miniature of each, in the form that its annotation guide describes."""

import gzip
import zipfile

import pytest

from pcfg_artifact.errors import TreebankError, UsageError
from pcfg_artifact.treebank.cleaning import Leaves, leaves_of
from pcfg_artifact.treebank.reading import read_treebank

# IcePaHC and FarPaHC: word-lemma leaves (some without a lemma), empty words under any label, references and page marks.
ICELANDIC = """( (CODE <P_3>))

( (IP-MAT (NP-SBJ (PRO-N Hann-hann))
          (VBDI sagði-segja)
          (CP-THT (C 0)
                  (IP-SUB (NP-SBJ *con*)
                          (BEPI er-vera)
                          (ADJP (ADJ-N full-gamall-gamall))))
          (. .-.)) (ID 1150.HOMILIUBOK.REL-SER,.2))

( (IP-MAT (NP-SBJ (NPR-N Haraldur)) (CODE {note}) (VBDI fór-fara) (. .-.)) (ID 1150.HOMILIUBOK.REL-SER,.3))
"""
# The Penn Parsed Corpora of Historical English: the same without lemmas.
MIDDLE_ENGLISH = """( (METADATA (AUTHOR unknown) (DATE 1225))
  (IP-MAT (NP-SBJ (PRO He)) (VBD seide) (CP-REL (WNP-1 0) (IP-SUB (NP-OB1 *T*-1) (NP-SBJ (N mon)) (VBD wel-com)))
          (E_S .)) (ID CMANCRIW,1.3))
"""
# ICON: an Indonesian tag set, one tree a line in a .txt file.
INDONESIAN = "(ROOT (S (NP (NNO Anak) (PRN itu)) (VP (VBI tidur)) (PUN .)))\n"


def words(bank):
    return [tree.words() for tree in bank.trees]


def test_word_lemma_leaves_are_detected_and_what_is_no_word_is_counted(tmp_path):
    (tmp_path / "1150.homiliubok.rel-ser.psd").write_text(ICELANDIC)
    bank = read_treebank(tmp_path)
    assert [str(tree) for tree in bank.trees] == [
        "(IP (NP (PRO Hann)) (VBDI sagði) (CP (IP (BEPI er) (ADJP (ADJ full-gamall)))) (. .))",
        "(IP (NP (NPR Haraldur)) (VBDI fór) (. .))"]
    assert (bank.n_raw, bank.n_trees) == (3, 2)
    assert {name: bank.cleaning[name] for name in ("non_words", "lemmas", "traces", "empty_trees")} == {
        "non_words": 4, "lemmas": 7, "traces": 2, "empty_trees": 1}


def test_leaf_format_sets_what_is_not_detected(tmp_path):
    (tmp_path / "a.psd").write_text(ICELANDIC)
    assert words(read_treebank(tmp_path, leaf_format="plain"))[1] == ["Haraldur", "fór-fara", ".-."]
    (tmp_path / "a.psd").write_text("(S (N well-known) (V is))\n")
    assert words(read_treebank(tmp_path)) == [["well-known", "is"]]
    assert words(read_treebank(tmp_path, leaf_format="word-lemma")) == [["well", "is"]]
    with pytest.raises(UsageError, match="leaf format 'x' is unknown"):
        leaves_of([], "x")


def test_historical_english_has_references_and_empty_words_but_no_lemmas(tmp_path):
    (tmp_path / "cmancriw.psd").write_text(MIDDLE_ENGLISH)
    bank = read_treebank(tmp_path)
    assert words(bank) == [["He", "seide", "mon", "wel-com", "."]]
    assert (bank.cleaning["non_words"], bank.cleaning["traces"]) == (2, 2)
    assert "lemmas" not in bank.cleaning


@pytest.mark.parametrize(("leaf", "word"), [("maður-maður", "maður"), (".-.", "."), ("---", "-"), ("-", "-"),
                                            ("a-", "a-"), ("full-gamall-gamall", "full-gamall"),
                                            ("konungs$-konungur", "konungs$"), ("af-af því-það", "af því"),
                                            ("a- b-", "a- b-")])
def test_the_lemma_follows_the_last_hyphen(leaf, word):
    assert Leaves(has_lemmas=True).word_of(leaf) == word


def test_zeros_and_stars_are_words_where_nothing_marks_a_historical_corpus(tmp_path):
    (tmp_path / "a.mrg").write_text("(S (CD 0) (SYM *) (NN x))\n")
    assert words(read_treebank(tmp_path)) == [["0", "*", "x"]]


@pytest.mark.parametrize("name", ["a.psd", "a.bracket", "a.penn", "a.PSD", "a.txt", "a.mrg.gz",
                                  "a.txt.gz", "b/c.psd.gz"])
@pytest.mark.parametrize("is_zip", [False, True])
def test_files_of_every_name_are_read_from_folders_and_zip_files(name, is_zip, tmp_path):
    data = gzip.compress(INDONESIAN.encode()) if name.endswith(".gz") else INDONESIAN.encode()
    if is_zip:
        with zipfile.ZipFile(tmp_path / "bank.zip", "w") as archive:
            archive.writestr(name, data)
    else:
        (tmp_path / "bank" / name).parent.mkdir(parents=True)
        (tmp_path / "bank" / name).write_bytes(data)
    bank = read_treebank(tmp_path / ("bank.zip" if is_zip else "bank"))
    assert words(bank) == [["Anak", "itu", "tidur", "."]]


def test_text_files_are_documents_only_where_nothing_else_is_and_a_readme_is_passed_over(tmp_path):
    (tmp_path / "README.txt").write_text("Trees (of Indonesian).\n")
    (tmp_path / "train.txt").write_text(INDONESIAN)
    bank = read_treebank(tmp_path)
    assert (list(bank.documents), bank.passed_over) == (["train.txt"], ["README.txt"])
    (tmp_path / "train.mrg").write_text(INDONESIAN)
    bank = read_treebank(tmp_path)
    assert (list(bank.documents), bank.passed_over) == (["train.mrg"], [])


def test_a_packed_file_is_unpacked_whatever_it_is_called_and_hashed_as_its_text(tmp_path):
    (tmp_path / "one").write_bytes(gzip.compress(INDONESIAN.encode(), mtime=1))
    hashes = [read_treebank(tmp_path / "one").sha256]
    (tmp_path / "one").write_bytes(gzip.compress(INDONESIAN.encode(), compresslevel=1, mtime=2))
    hashes.append(read_treebank(tmp_path / "one").sha256)
    assert hashes[0] == hashes[1]
    (tmp_path / "one").write_bytes(gzip.compress(INDONESIAN.encode())[:-9])
    with pytest.raises(TreebankError, match="cannot unpack .*one: "):
        read_treebank(tmp_path / "one")
