import pytest

from pcfg_artifact.errors import UsageError
from pcfg_artifact.parsing.punctuation import choose_rule, dropped_share, is_punctuation
from pcfg_artifact.parsing.scoring import span_f1
from pcfg_artifact.treebank.brackets import parse_trees


def trees(text):
    return parse_trees(text, "text")[0]


PENN = trees("(S (NP (DT the) (NN cat)) (VP (VBZ runs)) (. .))")
INDONESIAN = trees("(S (NP (NNO Anak) (PRN itu)) (VP (VBI tidur) (ADV 2)) (PUN .))")


@pytest.mark.parametrize(("tag", "word", "by_tag", "by_form"), [
    ("NN", "cat", False, False), (".", ".", True, True), ("NNO", "anak", True, False), ("-LRB-", "-LRB-", True, True),
    ("CD", "1,000", False, False), ("NN", "%", False, True), ("PUN", "…", True, True), ("X", "木", True, False)])
def test_what_is_punctuation_by_tag_and_by_form(tag, word, by_tag, by_form):
    assert is_punctuation(tag, word, "penn") is by_tag
    assert is_punctuation(tag, word, "form") is by_form


def test_the_rule_follows_the_treebank_and_its_share_is_known():
    assert choose_rule(PENN) == ("penn", 0.25)
    assert dropped_share(INDONESIAN, "penn") == 1.0
    assert choose_rule(INDONESIAN) == ("form", 0.2)


def test_a_rule_that_drops_too_much_is_refused_with_advice():
    with pytest.raises(UsageError, match="'penn' .* would drop 100.0% of the tokens.*--punctuation form"):
        choose_rule(INDONESIAN, "penn")
    with pytest.raises(UsageError, match="'form' .* would drop 50.0% .*--conventions PB PN"):
        choose_rule(trees("(S (A x) (B .))\n(S (A -) (B y))"))


def test_kim_counts_the_words_that_the_rule_keeps():
    spans = [(0, 2), (2, 4), (0, 4), (0, 5)]
    assert span_f1(INDONESIAN, [spans], "KIM", "form").sentence == 100.0
    assert span_f1(INDONESIAN, [spans], "KIM").n_skipped == 1
