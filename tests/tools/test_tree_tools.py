"""parse --kbest and --entropy, sample --length and --given; a grammar of numbers through the tools that take text."""

import json
import math

import numpy as np
import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.rulefile import from_text
from pcfg_artifact.parsing.best_trees import kbest
from pcfg_artifact.parsing.forest import tree_entropy

NUMBERS = """
ROOT -> 10 1.0
10 -> 11 12 0.6
10 -> 10 10 0.4
11 -> '1' 0.5
11 -> '2' 0.5
12 -> '2' 0.7
12 -> '3' 0.3
"""
SENTENCE = "1 2 2 3 1 2 2 2"  # 5 trees


@pytest.fixture
def rules(tmp_path) -> str:
    (tmp_path / "numbers.txt").write_text(NUMBERS)
    return str(tmp_path / "numbers.txt")


def printed(capsys, *arguments: str) -> list[str]:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out.splitlines()


def test_kbest_is_a_table_with_units_or_json(rules, capsys):
    expected = kbest(from_text(NUMBERS), [SENTENCE.split()], 10)[0]
    header, *lines = printed(capsys, "parse", "--grammar", rules, "--kbest", "10", SENTENCE)
    assert header.split("\t") == ["sentence", "rank", "log_prob_nats", "tree"]
    assert [line.split("\t")[::3] for line in lines] == [["1", str(tree)] for _, tree in expected]
    assert len(lines) == 5
    found = json.loads(printed(capsys, "parse", "--grammar", rules, "--kbest", "2", "--json", SENTENCE)[0])
    assert found["best"] == [{"log_prob": pytest.approx(log), "tree": str(tree)} for log, tree in expected[:2]]
    assert found["tree"] == str(expected[0][1])


def test_sentences_without_probability_have_no_best_trees_and_are_counted(rules, capsys, tmp_path):
    (tmp_path / "sentences.txt").write_text("1 2\n\n3 1\n")
    assert main(["parse", "--grammar", rules, "--kbest", "3", str(tmp_path / "sentences.txt")]) == 0
    out, err = capsys.readouterr()
    assert [line.split("\t")[0] for line in out.splitlines()[1:]] == ["1"]
    assert "1 without probability" in err
    assert "(no tree)" in err


def test_kbest_keeps_the_words_as_they_were_written(tmp_path, capsys):
    PCFG.from_rules({"S": 1.0}, [("S", "N", "N", 1.0)], [("N", "UNK", 1.0)]).save(tmp_path / "grammar")
    arguments = ["--grammar", str(tmp_path / "grammar"), "eine Katze"]
    assert printed(capsys, "parse", "--kbest", "1", *arguments)[1].split("\t")[3] == "(S (N eine) (N Katze))"
    assert printed(capsys, "sample", "-n", "1", "--given", arguments[2], *arguments[:2]) == ["(S (N eine) (N Katze))"]


def test_best_trees_of_a_written_grammar_come_back_unless_chains_make_them_many(tmp_path, capsys):
    plain, chains = tmp_path / "plain.txt", tmp_path / "chains.txt"
    plain.write_text("ROOT -> S 1.0\nS -> A 'x' A 0.5\nS -> S A 0.5\nA -> 'a' 1.0\n")
    chains.write_text("ROOT -> S 1.0\nS -> A 0.5\nS -> A S 0.5\nA -> 'a' 1.0\n")
    assert printed(capsys, "parse", "--grammar", str(plain), "--kbest", "2", "--unbinarise", "a x a a")[1:] == [
        f"1\t1\t{math.log(0.25):.12g}\t(S (S (A a) x (A a)) (A a))"]
    assert main(["parse", "--grammar", str(chains), "--kbest", "2", "--unbinarise", "a a"]) == 2
    assert "stands for several of yours" in capsys.readouterr().err


def test_entropy_is_that_of_the_tree_and_of_its_spans(rules, capsys):
    bits = tree_entropy(from_text(NUMBERS), SENTENCE.split()) / math.log(2)
    assert bits == pytest.approx(math.log2(5))  # all five trees have the same rules
    header, line = printed(capsys, "parse", "--grammar", rules, "--entropy", SENTENCE)
    assert header.split("\t") == ["sentence", "entropy_bits", "bits_per_word", "tree"]
    np.testing.assert_allclose([float(x) for x in line.split("\t")[1:3]], [bits, bits / 8])
    found = json.loads(printed(capsys, "parse", "--grammar", rules, "--entropy", "--json", SENTENCE)[0])
    assert found["entropy_bits"] == pytest.approx(bits)
    whole = next(span for span in found["spans"] if (span["start"], span["end"]) == (0, 8))
    # One of three splits on top: 2, 1 and 2 of the five trees.
    assert whole["entropy_bits"] == pytest.approx(-2 * 0.4 * math.log2(0.4) - 0.2 * math.log2(0.2))


@pytest.mark.parametrize(("arguments", "message"), [
    (["parse", "--kbest", "2", "--entropy"], "leave out --entropy"),
    (["parse", "--kbest", "0"], "--kbest is 0"),
    (["parse", "--kbest", "2", "--backend", "gpu"], "leave out --backend"),
    (["parse", "--entropy", "--decode", "viterbi"], "leave out --decode"),
    (["parse", "--kbest", "2", "--treebank", "embedded"], "leave out SENTENCES"),
    (["sample", "-n", "1", "--length", "3:2"], "the smaller one first"),
    (["sample", "-n", "1", "--length", "many"], "no length"),
    (["sample", "-n", "1", "--length", "3"], "no sentence of the grammar has 3 words"),
    (["sample", "-n", "1", "--length", "4", "--max-length", "4"], "choose one"),
    (["sample", "-n", "1", "--given", "3 1"], "no probability"),
    (["sample", "-n", "1", "--given", "1 2", "--out", "x"], "leave out --out")])
def test_refusals_say_what_is_wrong(arguments, message, rules, capsys):
    assert main([*arguments, "--grammar", rules]) == 2
    assert message in capsys.readouterr().err


def test_sentences_of_a_length_are_drawn_to_the_screen_and_to_shards(rules, capsys, tmp_path):
    lines = printed(capsys, "sample", "--grammar", rules, "-n", "50", "--length", "4:7")
    assert {len(line.split()) for line in lines} == {4, 6}
    out = tmp_path / "drawn"
    assert printed(capsys, "sample", "--grammar", rules, "-n", "50", "--length", "4:7", "--out", str(out)) == []
    lengths = np.diff(np.load(out / "shard-00000" / "tokens.offsets.npy"))
    assert lengths.tolist() == [len(line.split()) for line in lines]


def test_trees_of_every_sentence_of_a_file_are_drawn(rules, capsys, tmp_path):
    (tmp_path / "sentences.txt").write_text(f"{SENTENCE}\n1 3\n")
    lines = printed(capsys, "sample", "--grammar", rules, "-n", "40", "--given", str(tmp_path / "sentences.txt"))
    assert len(lines) == 80
    assert len(set(lines[:40])) == 5
    assert set(lines[40:]) == {"(10 (11 1) (12 3))"}


def test_a_grammar_of_numbers_goes_through_every_tool_that_takes_text(rules, capsys):
    for arguments in (["parse", SENTENCE], ["parse", "--decode", "viterbi", "--json", SENTENCE],
                      ["parse", "--unbinarise", "--decode", "viterbi", SENTENCE], ["mask", "1 [MASK] 2 3"],
                      ["next", "1 2 2"], ["surprisal", SENTENCE], ["surprisal", "--json", SENTENCE]):
        assert main([*arguments, "--grammar", rules]) == 0
        assert capsys.readouterr().out
