"""The tools parse and mask: what a user types, sees and gets wrong."""

import io
import json

import numpy as np
import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.errors import UsageError
from pcfg_artifact.tools.arguments import one_sentence, read_sentences


@pytest.fixture
def grammar_folder(tmp_path, tiny_grammar):
    tiny_grammar.save(tmp_path / "grammar")
    return str(tmp_path / "grammar")


def test_parse_prints_one_tree_a_line_and_an_empty_line_for_an_empty_one(grammar_folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("she eats fish\n\nshe fish eats she\neats\n"))
    assert main(["parse", "--grammar", grammar_folder]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["(S (NP she) (VP (V eats) (NP fish)))", "",
                                "(S (NP she) (VP (V fish) (VP (V eats) (NP she))))", "(X eats)"]
    assert "3 sentences; 1 without probability, 1 still so" in err


def test_parse_says_nothing_more_where_every_sentence_has_a_tree(grammar_folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("she eats fish\n"))
    assert main(["parse", "--grammar", grammar_folder]) == 0
    assert capsys.readouterr().err == ""


def test_parse_by_viterbi_reads_a_file(grammar_folder, capsys, tmp_path):
    (tmp_path / "sentences.txt").write_text("she eats fish\nfish fish\n")
    assert main(["parse", "--grammar", grammar_folder, "--decode", "viterbi", str(tmp_path / "sentences.txt")]) == 0
    assert capsys.readouterr().out.splitlines() == ["(S (NP she) (VP (V eats) (NP fish)))", "(X (X fish) (X fish))"]


def test_parse_of_very_long_lines_answers_or_refuses(grammar_folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("she " + "eats " * 1998 + "fish\n"))
    assert main(["parse", "--grammar", grammar_folder]) == 0
    assert capsys.readouterr().out.count("(VP") == 1998


def test_parse_scores_a_treebank_in_named_conventions_with_baselines(capsys, tmp_path):
    trees = ["(S (NP (DT the) (NN cat)) (VP (VBD saw) (NP (DT the) (NN dog))))"] * 40
    (tmp_path / "trees.mrg").write_text("\n".join(trees))
    source, folder = str(tmp_path / "trees.mrg"), str(tmp_path / "grammar")
    assert main(["learn", "--treebank", source, "--out", folder]) == 0
    capsys.readouterr()
    assert main(["parse", "--grammar", folder, "--treebank", source]) == 0
    out = capsys.readouterr().out
    assert "PB: punctuation kept, left-binarised gold" in out
    assert "KIM: punctuation dropped, n-ary gold" in out
    scores = {line[:26].strip(): line[26:].split() for line in out.splitlines() if "/" in line[26:]}
    assert scores["Inside-Outside"] == ["100.00", "/", "100.00"] * 2
    assert {"right-branching", "left-branching", "balanced", "random", "ceiling (binarised gold)"} <= scores.keys()
    assert "2 sentences; 0 without probability" in out


def test_mask_ranks_words_with_their_probabilities(grammar_folder, capsys):
    assert main(["mask", "--grammar", grammar_folder, "she [MASK] fish", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"words": ["she", "[MASK]", "fish"], "masked": [
        {"position": 1, "words": {"eats": pytest.approx(0.6), "fish": pytest.approx(0.4)}}]}
    assert main(["mask", "--grammar", grammar_folder, "she [MASK] [MASK]", "-n", "1"]) == 0
    header, position, likeliest = capsys.readouterr().out.splitlines()[:3]
    assert header.split() == ["probability", "word"]
    assert position.startswith("position 1 ")
    assert likeliest.split() == ["0.600000", "eats"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["mask", "she eats fish"], "no [MASK] in"),
    (["mask", "eats [MASK] eats"], "gives no probability to"),
    (["mask", "nowhere [MASK]"], "no word and no signature for 'nowhere'"),
    (["parse", "missing.txt"], "cannot read sentences from missing.txt"),
    (["parse", "--unbinarise"], "--unbinarise needs --decode viterbi"),
    (["parse", "--treebank", "embedded", "--decode", "viterbi"], "leave out SENTENCES, --decode, --kbest"),
    (["parse", "--treebank", "missing.zip"], "no treebank at missing.zip"),
])
def test_refusals_say_what_is_wrong_and_exit_with_2(grammar_folder, capsys, arguments, message):
    assert main([arguments[0], "--grammar", grammar_folder, *arguments[1:]]) == 2
    assert message in capsys.readouterr().err


def test_a_damaged_grammar_is_refused(grammar_folder, tmp_path, capsys):
    path = tmp_path / "grammar" / "grammar.npz"
    path.write_bytes(path.read_bytes()[:100])
    assert main(["mask", "--grammar", grammar_folder, "[MASK]"]) == 2
    assert "the file is damaged" in capsys.readouterr().err


def test_a_file_of_sentences_with_a_mark_or_a_nul(tmp_path):
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbfshe runs\n\ncats\n")
    assert list(read_sentences(str(tmp_path / "marked.txt"))) == [["she", "runs"], [], ["cats"]]
    (tmp_path / "nul.txt").write_bytes(b"she runs\nca\0ts\n")
    with pytest.raises(UsageError, match="line 2 of .* holds a NUL character"):
        list(read_sentences(str(tmp_path / "nul.txt")))
    for name, message in (("nowhere.txt", "cannot read sentences"), ("of/a/folder", "cannot read sentences"),
                          (str(tmp_path), "cannot read sentences"), ("a\0b", "holds a NUL")):
        with pytest.raises(UsageError, match=message):
            list(read_sentences(name))


def test_what_names_no_file_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in ("she eats fish", "she", "e.g. U.S. fish", "she eats ./fish", "?", "3.5", "x" * 300):
        assert list(read_sentences(text)) == [text.split()]
    assert list(read_sentences("")) == [[]]
    assert one_sentence("she eats") == ["she", "eats"]
    (tmp_path / "she").write_text("a file wins\nalways\n")
    assert list(read_sentences("she")) == [["a", "file", "wins"], ["always"]]
    with pytest.raises(UsageError, match="she has 2 sentences, expected one"):
        one_sentence("she")


@pytest.mark.parametrize("tool", ["parse", "mask", "next", "surprisal", "construct"])
def test_every_text_tool_takes_an_argument_a_file_and_standard_input(tool, grammar_folder, tmp_path, capsys,
                                                                     monkeypatch):
    text = {"mask": "she [MASK] fish", "next": "she eats"}.get(tool, "she eats fish")
    (tmp_path / "sentences").write_text(f"{text}\n")
    for json_option in ([], ["--json"]):
        found = []
        for given in (text, str(tmp_path / "sentences"), "-"):
            monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))
            assert main([tool, "--grammar", grammar_folder, given, *json_option]) == 0
            found.append(capsys.readouterr().out)
        assert found[0] == found[1] == found[2] != ""
        if json_option:
            [line] = found[0].splitlines()
            assert json.loads(line)["words"] == text.split()


def test_parse_gives_log_probabilities_and_marginals_as_json_lines(grammar_folder, capsys, monkeypatch):
    for decode in ("recall", "viterbi"):
        monkeypatch.setattr("sys.stdin", io.StringIO("she eats fish\n\neats\n"))
        assert main(["parse", "--grammar", grammar_folder, "--json", "--decode", decode]) == 0
        good, empty, impossible = map(json.loads, capsys.readouterr().out.splitlines())
        # P(she eats fish) = 1 * .5 * .75 * .6 * .5, and it has one tree
        assert good["log_prob"] == pytest.approx(np.log(0.1125))
        assert good["tree"] == "(S (NP she) (VP (V eats) (NP fish)))"
        assert [(s["start"], s["end"], s["label"]) for s in good["spans"]] == [
            (0, 1, "NP"), (1, 2, "V"), (2, 3, "NP"), (1, 3, "VP"), (0, 3, "S")]
        assert [s["marginal"] for s in good["spans"]] == pytest.approx([1.0] * 5)
        assert (empty["words"], empty["tree"], empty["spans"]) == ([], None, [])
        assert (impossible["log_prob"], impossible["attempts"], impossible["tree"]) == (None, 3, "(X eats)")
        assert ("tree_log_prob" in good) == (decode == "viterbi")
        if decode == "viterbi":
            assert good["tree_log_prob"] == pytest.approx(good["log_prob"])
            assert impossible["tree_log_prob"] is None


def test_parse_writes_gold_and_predicted_trees_for_evalb_with_labelled_scores(capsys, tmp_path):
    tree = "(S (NP (DT the) (NN cat)) (VP (VBD saw) (NP (DT the) (NN dog))) (. .))"
    (tmp_path / "trees.mrg").write_text(f"{tree}\n" * 40)
    source, folder = str(tmp_path / "trees.mrg"), str(tmp_path / "grammar")
    assert main(["learn", "--treebank", source, "--out", folder]) == 0
    assert main(["parse", "--grammar", folder, "--treebank", source, "--evalb", str(tmp_path / "evalb")]) == 0
    out = capsys.readouterr().out
    assert main(["parse", "--grammar", folder, "--treebank", source, "--labelled", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["unit"] == "percent"
    assert found["sentences"] == 2
    assert found["unlabelled"][0] == {"parser": "Inside-Outside", "convention": "PB", "sentence_f1": 100.0,
                                      "corpus_f1": 100.0}
    assert [row["f1"] for row in found["labelled"]] == [100.0, 100.0]
    assert "punctuation by the rule penn (every tag but the Penn Treebank's tags of words): 16.7% of the tokens" in out
    for name in ("labelled recall", "viterbi"):
        assert [line.split()[-5:] for line in out.splitlines() if line.startswith(name)] == [["100.00"] * 5]
    for name in ("gold", "labelled_recall", "viterbi"):
        assert (tmp_path / "evalb" / f"{name}.trees").read_text() == f"(TOP {tree})\n" * 2


def test_trees_without_marginals_are_json_without_spans(grammar_folder, capsys):
    arguments = ["--decode", "viterbi", "--unbinarise", "--json"]
    assert main(["parse", "--grammar", grammar_folder, "she eats fish", *arguments]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "words": ["she", "eats", "fish"], "tree": "(S (NP she) (VP (V eats) (NP fish)))", "attempts": 1,
        "tree_log_prob": pytest.approx(np.log(0.1125))}


@pytest.mark.parametrize("arguments", [["--labelled"], ["--evalb", "x"]])
def test_scores_that_do_not_fit_the_request_are_refused(grammar_folder, capsys, arguments):
    assert main(["parse", "--grammar", grammar_folder, *arguments]) == 2
    assert capsys.readouterr().err.startswith("error: --")
