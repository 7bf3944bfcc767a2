"""Sources: files, folders, zip files, NLTK's sample; what is read from them and recorded about it."""

import gc
import shutil
import zipfile

import pytest

from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.treebank.binarise import VARIANTS
from pcfg_artifact.treebank.reading import read_treebank, source_hash
from pcfg_artifact.treebank.splits import split

FIRST = "( (S (NP-SBJ (PRP she))\n     (VP (VBZ runs))\n     (. .)) )\n"
SECOND = "(TOP (NP (NN Title)))\n(S (NP (-NONE- *)))\n"


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "bank"
    (root / "b" / "deep").mkdir(parents=True)
    (root / "b" / "deep" / "second.tree").write_text(SECOND)
    (root / "a.MRG").write_text(FIRST)
    (root / "README.txt").write_text("no trees here")
    (root / ".hidden.mrg").write_text("(((")
    return root


def zipped(folder, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*"), reverse=True):
            archive.write(file, file.relative_to(folder))
        archive.writestr("__MACOSX/a.mrg", "(((")
    return path


def test_folder_gives_its_documents_in_order_with_counts(folder):
    bank = read_treebank(str(folder))
    assert {name: [str(t) for t in trees] for name, trees in bank.documents.items()} == {
        "a.MRG": ["(S (NP (PRP she)) (VP (VBZ runs)) (. .))"], "b/deep/second.tree": ["(NP (NN Title))"]}
    assert (bank.n_raw, bank.n_trees, len(bank.trees)) == (3, 2, 2)
    assert {name: n for name, n in bank.cleaning.items() if n} == {
        "function_tags": 1, "outer_brackets": 2, "traces": 1, "emptied_nodes": 2, "empty_trees": 1}
    assert bank.bad_trees == ()


def test_zip_file_and_folder_agree(folder, tmp_path):
    from_folder, from_zip = read_treebank(folder), read_treebank(zipped(folder, tmp_path / "bank.zip"))
    assert from_zip.documents == from_folder.documents
    assert from_zip.sha256 == from_folder.sha256


def test_a_treebank_is_the_same_packed_with_its_folder_and_given_by_the_folder_above(folder, tmp_path):
    above = tmp_path / "above" / "more"
    above.mkdir(parents=True)
    shutil.copytree(folder, above / "penn")
    plain = read_treebank(folder)
    for other in (above, above.parent, zipped(above, tmp_path / "with_folder.zip")):
        found = read_treebank(other)
        assert found.sha256 == source_hash(other) == plain.sha256
        assert [str(tree) for tree in found.trees] == [str(tree) for tree in plain.trees]
        assert all(name.startswith(("penn/", "more/penn/")) for name in found.documents)  # where a user looks for it


def test_hash_changes_with_content_and_with_names(folder):
    hashes = {read_treebank(folder).sha256}
    (folder / "a.MRG").write_text(FIRST + " ")
    hashes.add(read_treebank(folder).sha256)
    (folder / "a.MRG").rename(folder / "aa.mrg")
    hashes.add(read_treebank(folder).sha256)
    assert len(hashes) == 3


def test_single_file_of_any_name_and_its_byte_order_mark(tmp_path):
    path = tmp_path / "trees.txt"
    path.write_bytes(b"\xef\xbb\xbf" + ("(S (NN x) (NN y))\n" * 40).encode())
    bank = read_treebank(path)
    assert list(bank.documents) == ["trees.txt"]
    assert (len(split(bank).train), len(split(bank).test)) == (38, 2)


def test_progress_sees_every_document(folder):
    seen = []

    def progress(iterable, *, total, desc):
        for item in iterable:
            seen.append((total, desc))
            yield item

    read_treebank(folder, progress=progress)
    assert seen == [(2, "reading treebank")] * 2


def test_skipping_lists_bad_trees_and_undecodable_or_empty_files(folder):
    (folder / "c.mrg").write_bytes(b"(NN x)\n(NN caf\xe9)\n")
    (folder / "d.mrg").write_text("")
    (folder / "e.mrg").write_text("(NN x)\n(S (NN y)\n(NN z)\n")
    bank = read_treebank(folder, skip_bad_trees=True)
    assert [str(bad) for bad in bank.bad_trees] == [
        "c.mrg, line 2: byte 0xe9 is not UTF-8 text", "d.mrg, line 1: the text is empty",
        "e.mrg, line 2: a tree that begins here is never closed (1 closing brackets missing)"]
    assert [tree.word for tree in bank.documents["e.mrg"]] == ["x", "z"]
    assert [tree.word for tree in bank.documents["c.mrg"]] == ["x"]


def test_linked_folders_are_followed_once_and_loops_end(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "third.mrg").write_text("(NN z)\n")
    (folder / "linked").symlink_to(elsewhere)
    (folder / "again").symlink_to(folder / "b")  # the folder's own place goes before a link to it
    (elsewhere / "loop").symlink_to(folder)
    bank = read_treebank(folder)
    assert list(bank.documents) == ["a.MRG", "b/deep/second.tree", "linked/third.mrg"]


def test_a_tag_that_heads_phrases_too_is_renamed_and_said(tmp_path):
    (tmp_path / "a.mrg").write_text("(S (NP (DT the) (NN cat)) (VP (VBZ runs)))\n(S (NP she) (VP (VBZ runs)))\n")
    bank = read_treebank(tmp_path)
    assert [str(tree) for tree in bank.trees] == ["(S (NP (DT the) (NN cat)) (VP (VBZ runs)))",
                                                  "(S (NP_TAG she) (VP (VBZ runs)))"]
    assert bank.cleaning["renamed_tags"] == 1
    assert str(bank.renamed[0]) == ("1 words tagged NP, which heads phrases too, are tagged NP_TAG "
                                    "(first: 'she' in tree 2 of a.mrg)")
    for variant in VARIANTS:
        assert "NP_TAG" in "".join(learn_pcfg(bank.trees, variant, cutoff=0).preterminals)


@pytest.mark.parametrize("packed", [False, True])
def test_nltk_sample_is_found_where_nltk_data_says(folder, tmp_path, monkeypatch, packed):
    corpora = tmp_path / "data" / "corpora"
    corpora.mkdir(parents=True)
    if packed:
        zipped(folder, corpora / "treebank.zip")
    else:
        folder.rename(corpora / "treebank")
    monkeypatch.setenv("NLTK_DATA", str(tmp_path / "data"))
    bank = read_treebank("nltk")
    assert (bank.source, bank.n_trees) == ("nltk", 2)


def test_garbage_collection_is_as_it_was(folder):
    assert gc.isenabled()
    read_treebank(folder)
    assert gc.isenabled()


@pytest.mark.craft
def test_craft_is_read_whole(craft_treebank):
    assert (len(craft_treebank.documents), craft_treebank.n_raw, craft_treebank.n_trees) == (97, 30_830, 30_830)
    assert craft_treebank.bad_trees == ()
    # Counted in the text itself: 37,181 "(-NONE- " leaves, five leaves with a thin space inside, one bracket a tree.
    assert craft_treebank.cleaning["traces"] == 37_181
    assert craft_treebank.cleaning["joined_leaves"] == 5
    assert craft_treebank.cleaning["outer_brackets"] == 30_830
    labels = {node.label for tree in craft_treebank.trees for node in tree.preorder()}
    assert not any(set(label) & set("+|^<>=") for label in labels)
    assert {"-LRB-", "-RRB-"} <= labels
    assert "-NONE-" not in labels
    parts = split(craft_treebank)
    assert (len(parts.train) + len(parts.test), parts.how) == (30_830, "every 20th document is test")
    assert len(parts.test) == sum(len(trees) for trees in list(craft_treebank.documents.values())[19::20])
