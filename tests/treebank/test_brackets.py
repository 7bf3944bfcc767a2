"""Bracketed text to raw trees, good and broken."""

import pytest

from pcfg_artifact.errors import TreebankError
from pcfg_artifact.treebank.brackets import MAX_DEPTH, parse_trees
from pcfg_artifact.treebank.tree import Tree

SHE_RUNS = Tree("S", (Tree("NP", (Tree("PRP", (), "she"),)), Tree("VP", (Tree("VBZ", (), "runs"),))))
LINE = "(S (NP (PRP she)) (VP (VBZ runs)))"


def trees_of(text):
    trees, bad = parse_trees(text, "file")
    assert bad == []
    return trees


@pytest.mark.parametrize("text", [
    LINE, f"  {LINE}\n\n", "(S\n  (NP (PRP she))\n  (VP\n    (VBZ runs)))\n", "(S(NP(PRP she))(VP(VBZ runs)))",
    "( S ( NP ( PRP\tshe ) ) ( VP ( VBZ\r\nruns ) ) )"])
def test_white_space_between_brackets_does_not_matter(text):
    assert trees_of(text) == [SHE_RUNS]


def test_several_trees_share_a_line_or_span_lines():
    assert trees_of(f"{LINE} {LINE}\n(S (NP (PRP she))\n   (VP (VBZ runs)))") == [SHE_RUNS] * 3


def test_outer_bracket_without_label_is_kept_for_the_cleaning():
    assert trees_of(f"( {LINE} )") == [Tree("", (SHE_RUNS,))]


def test_leaf_of_two_tokens_is_one_leaf():
    [tree] = trees_of("(NP (NN Xpd\u200aTTD) (NN gene))")
    assert tree == Tree("NP", (Tree("NN", (), "Xpd TTD"), Tree("NN", (), "gene")))


@pytest.mark.parametrize(("text", "line", "reason"), [
    (f"{LINE}\n(S (NP (PRP she))\n", 2, "never closed (1 closing brackets missing)"),
    (f"{LINE})", 1, "a closing bracket that no opening one belongs to"),
    (f"{LINE}\n\njunk", 3, "the word 'junk' outside any tree"),
    ("(S (NP (PRP she)) runs)", 1, "the word 'runs' beside other children of 'S'"),
    ("(S\n (NP))", 2, "a node 'NP' without a word or children"),
    ("(S\n ( (PRP she)))", 2, "a bracket without a label inside a tree"),
    ("()", 1, "an empty pair of brackets"),
    ("", 1, "the text is empty"),
    (" \n ", 1, "the text is empty"),
    ("no brackets", 1, "holds no tree"),
    ("(S (NN a\0b))", 1, "a NUL character"),
])
def test_broken_text_is_refused_with_file_line_and_reason(text, line, reason):
    with pytest.raises(TreebankError) as error:
        parse_trees(text, "some/file.mrg")
    assert str(error.value).startswith(f"some/file.mrg, line {line}: ")
    assert reason in str(error.value)
    assert "--skip-bad-trees" in str(error.value)


def nested(depth):
    return "(X " * (depth - 1) + "(NN x)" + ")" * (depth - 1)


def test_deepest_allowed_tree_is_read_and_can_be_compared():
    [tree] = trees_of(nested(MAX_DEPTH))
    assert tree == trees_of(nested(MAX_DEPTH))[0]
    assert hash(tree) == hash(trees_of(nested(MAX_DEPTH))[0])


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 10_000, 1_000_000])
def test_deeper_trees_are_refused_at_the_line_where_they_begin(depth):
    with pytest.raises(TreebankError, match=f"line 2: a tree deeper than {MAX_DEPTH} brackets"):
        parse_trees(f"{LINE}\n{nested(depth)}", "file")


@pytest.mark.parametrize("broken", [
    "(S (NP (PRP she))", "( (S (NP (PRP she))", f"{LINE})", "junk", "(S (NP))", "(S ((PRP she)))",
    "(S (NP (PRP she))) (VP (VBZ runs)))", "(())", nested(10_000),
    "(S (NP (PRP she)) runs)"])
def test_skipping_keeps_every_tree_around_a_broken_one(broken):
    other = "(S (NP (PRP they)) (VP (VBP run)))"
    trees, bad = parse_trees(f"{LINE}\n{broken}\n{other}\n{broken}\n{LINE}\n", "file", skip_bad_trees=True)
    assert [str(tree) for tree in trees] == [LINE, other, LINE]
    assert [b.line for b in bad] == [2, 4]


def test_skipping_reads_an_unbroken_text_as_without_it():
    text = "(S\n(NP (PRP she))\n(VP (VBZ runs)))\n"  # continuation lines in the first column
    assert parse_trees(text, "file", skip_bad_trees=True) == ([SHE_RUNS], [])


def test_skipping_follows_the_indentation_of_the_first_tree():
    text = f"  {LINE}\n  (S (NP\n    (PRP she))\n  {LINE}\n"
    trees, bad = parse_trees(text, "file", skip_bad_trees=True)
    assert trees == [SHE_RUNS, SHE_RUNS]
    assert [b.line for b in bad] == [2]


def test_skipping_takes_linear_time():
    # 40,000 broken trees: work that grew with the square of the length would take minutes.
    trees, bad = parse_trees(f"(S (NP (PRP she))\n{LINE}\n" * 40_000, "file", skip_bad_trees=True)
    assert len(trees) == 40_000
    assert [b.line for b in bad] == list(range(1, 80_000, 2))


def test_skipping_takes_linear_time_where_all_brackets_close_at_the_end():
    trees, bad = parse_trees(f"(S (NP (PRP she))\n{LINE}\n" * 10_000 + ")" * 10_000, "file", skip_bad_trees=True)
    assert len(trees) == 10_000
    assert [b.line for b in bad] == [*range(1, 20_000, 2), 20_001]


@pytest.mark.parametrize("stray", [")", ")))", "\xe9", "junk", "\0", "()", "(S", "\udce9"])
@pytest.mark.parametrize("layout", ["(S (NP (PRP {0}))\n   (VP (VBZ runs)))", "(S (NP (PRP {0})) (VP (VBZ runs)))"])
def test_skipping_loses_no_tree_before_or_after_a_stray_line(stray, layout):
    lines = [layout.format(word) for word in "abcdef"]
    trees, bad = parse_trees("\n".join([*lines[:3], stray, *lines[3:]]), "file", skip_bad_trees=True)
    assert [tree.words()[0] for tree in trees] == list("abcdef")
    line = 3 * (1 + layout.count("\n")) + 1
    assert [(b.first_line, b.line, b.last_line) for b in bad] == [(line, line, line)]


@pytest.mark.parametrize("damage", ["caf\udce9", "caf\0", "ca(fe", "ca)fe", "(", ")"])
def test_skipping_loses_only_the_damaged_tree_and_lists_its_line(damage):
    lines = [LINE.replace("she", word) for word in "abcdef"]
    lines[2] = LINE.replace("she", damage)
    trees, bad = parse_trees("\n".join(lines), "file", skip_bad_trees=True)
    assert [tree.words()[0] for tree in trees] == list("abdef")
    assert [(b.first_line, b.last_line) for b in bad] == [(3, 3)]


def test_a_bracket_missing_here_and_one_too_many_there_do_not_make_one_tree_of_all_between():
    lines = [LINE.replace("she", word) for word in "abcdefg"]
    lines[1], lines[4] = lines[1][:-1], lines[4] + ")"
    with pytest.raises(TreebankError, match="line 2: a tree that begins here runs over line 3"):
        parse_trees("\n".join(lines), "file")
    trees, bad = parse_trees("\n".join(lines), "file", skip_bad_trees=True)
    assert [tree.words()[0] for tree in trees] == list("acdfg")
    assert [b.line for b in bad] == [2, 5]


def test_where_trees_run_over_lines_of_the_first_column_those_before_the_damage_survive():
    whole = "(S\n(NP (PRP she))\n(VP (VBZ runs)))\n"
    trees, bad = parse_trees(whole * 3 + "(S\n(NP (PRP they))\n(VP (VBP run))\n" + whole * 3, "file",
                             skip_bad_trees=True)
    assert trees == [SHE_RUNS] * 3
    assert [(b.first_line, b.last_line) for b in bad] == [(10, 21)]


def test_many_parts_of_one_damaged_tree_do_not_decide_how_the_text_is_laid_out():
    whole = ["(S\n(NP (DT the)\n(NN cat))\n(VP\n(VBZ runs)))\n", "(S\n(NP-SBJ it)\n(VBZ rains))\n",
             "(S\n(NP (DT the)\n(NN dog))\n(VP\n(VBZ runs)))\n"]
    parts = "(S\n(NP-SBJ\n(S a)\n(NP b)\n(NP c)\n(VBZ d)\n(NP-SBJ e)\n(NP-SBJ f)\n(VBZ g)\n(X\n"  # never closed
    kept, bad = parse_trees("".join(whole) + parts, "f", skip_bad_trees=True)
    assert kept == [tree for text in whole for tree in parse_trees(text, "f")[0]]
    assert {line for b in bad for line in range(b.first_line, b.last_line + 1)} == set(range(14, 24))
