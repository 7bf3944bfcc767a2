import json
from dataclasses import replace

import numpy as np
import pytest

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.pcfg import PCFG


def test_interminals_are_numbered_before_preterminals(tiny_grammar):
    assert tiny_grammar.nonterminals == ("S", "VP", "NP", "V")
    assert tiny_grammar.interminals == ("S", "VP")
    assert tiny_grammar.words == ("she", "fish", "eats")


def test_saved_grammar_loads_equal(tiny_grammar, tmp_path):
    tiny_grammar.save(tmp_path)
    loaded = PCFG.load(tmp_path)
    assert loaded.nonterminals == tiny_grammar.nonterminals
    assert loaded.words == tiny_grammar.words
    for name in ("root", "binary", "binary_prob", "lexical", "lexical_prob"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(tiny_grammar, name))


def test_encode_falls_back_to_signature_then_unk_then_minus_one(tiny_grammar):
    assert tiny_grammar.encode(["she", "Xyzzy"]).tolist() == [0, -1]
    lexical = [("A", "cat", 0.5), ("A", "UNK-LC-s", 0.25), ("A", "UNK", 0.25)]
    grammar = PCFG.from_rules({"A": 1.0}, [], lexical)
    assert [grammar.words[w] for w in grammar.encode(["cat", "dogs", "Zurich"])] == ["cat", "UNK-LC-s", "UNK"]


def test_encode_sends_rare_known_words_to_their_signature():
    lexical = [("A", "cats", 0.5), ("A", "UNK-LC-s", 0.5)]
    grammar = PCFG.from_rules({"A": 1.0}, [], lexical, word_counts={"cats": 80, "UNK-LC-s": 9})
    assert grammar.words[grammar.encode(["cats"])[0]] == "cats"
    assert grammar.words[grammar.encode(["cats"], rare_below=100)[0]] == "UNK-LC-s"


@pytest.mark.parametrize(("rules", "message"), [
    (dict(root={"S": 1.0}, binary=[("S", "A", "A", 0.9)], lexical=[("A", "x", 1.0)]), "rules of 'S' sum to 0.9"),
    (dict(root={"A": 0.5}, binary=[], lexical=[("A", "x", 1.0)]), "root distribution sum to 0.5"),
    (dict(root={"A": 1.0}, binary=[("A", "A", "A", 1.0)], lexical=[("A", "x", 1.0)]), "both binary and lexical"),
    (dict(root={"B": 1.0}, binary=[], lexical=[("A", "x", 1.0)]), "'B' in the root distribution heads no rule"),
    (dict(root={"S": 1.0}, binary=[("S", "A", "Q", 1.0)], lexical=[("A", "x", 1.0)]), "'Q' in the rule S -> A Q"),
    (dict(root={"A": 1.0}, binary=[], lexical=[("A", "x", 0.5), ("A", "x", 0.5)]), "lexical rule is listed twice"),
    (dict(root={"A": 1.0}, binary=[], lexical=[("A", "x", 1.5), ("A", "y", -0.5)]), "expected 0 to 1"),
    (dict(root={"A": 1.0}, binary=[], lexical=[("A", "x", float("nan"))]), "expected 0 to 1"),
    (dict(root={}, binary=[], lexical=[]), "no lexical rule"),
])
def test_a_grammar_that_breaks_an_invariant_is_refused(rules, message):
    with pytest.raises(GrammarError, match=message):
        PCFG.from_rules(**rules)


def test_a_cut_grammar_may_have_less_mass_but_not_more(tiny_grammar):
    cut = replace(tiny_grammar, binary=tiny_grammar.binary[:2], binary_prob=tiny_grammar.binary_prob[:2],
                  is_proper=False)
    assert cut.rule_mass()[1] == 0.25  # rules are kept sorted: V NP, the later one, is cut
    with pytest.raises(GrammarError, match="sum to"):
        replace(tiny_grammar, root=np.array([0.9, 0.2, 0, 0]), is_proper=False)


def test_truncated_foreign_and_inconsistent_grammar_files_are_refused(tiny_grammar, tmp_path):
    tiny_grammar.save(tmp_path)
    archive, meta = tmp_path / "grammar.npz", tmp_path / "grammar.json"
    whole, names = archive.read_bytes(), json.loads(meta.read_text())

    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GrammarError, match="SHA-256"):
        PCFG.load(tmp_path)

    archive.write_bytes(whole)
    meta.write_text(json.dumps({**names, "version": 99}))
    with pytest.raises(GrammarError, match="version 99"):
        PCFG.load(tmp_path)
    meta.write_text(json.dumps({**names, "words": names["words"][:-1]}))
    with pytest.raises(GrammarError, match="expected 0 to 1"):
        PCFG.load(tmp_path)
    meta.write_text("{")
    with pytest.raises(GrammarError, match="cannot be read"):
        PCFG.load(tmp_path)
    meta.unlink()
    with pytest.raises(GrammarError, match="not found"):
        PCFG.load(tmp_path)
