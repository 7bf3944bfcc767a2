"""learn, sample, parse and mask on hostile grammars, counts, folders and streams: an answer, or one clear refusal."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.rulefile import from_text, to_text
from pcfg_artifact.parsing.decoding import viterbi
from pcfg_artifact.treebank.brackets import parse_trees
from pcfg_artifact.treebank.tree import Tree

RULES = "ROOT -> S 1\nS -> A B 1\nA -> 'hello' 1\nB -> 'world' 1\n"
TREES = "(S (NP (PRP she)) (VP (VBZ runs)))\n" * 40


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.txt"
    path.write_text(RULES)
    return path


@pytest.fixture
def treebank(tmp_path):
    path = tmp_path / "trees.ptb"
    path.write_text(TREES)
    return path


def refused(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert len(captured.err.strip().splitlines()) == 1
    return captured.err


# ---- rule files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "message"), [
    ("ROOT -> S 0.5\nROOT -> S 1\n" + RULES[12:], "line 2: 'ROOT -> S 1' is the rule of line 1 again"),
    (RULES + "A -> 'hello' 0\n", "line 5: \"A -> 'hello' 0\" is the rule of line 3 again"),
    (RULES + "S -> A B 0\n", "line 5: 'S -> A B 0' is the rule of line 2 again"),
    (RULES + "A -> B B 0.5\n", "rules.txt, lines 3, 5: the rules of 'A' sum to 1.5"),
    (RULES + "C -> D 1\nD -> C 1\n", "rules.txt, line 5: the unary rules of 'C' lead to no word"),
    (RULES + "S -> B 'x' C 0\n", "rules.txt, line 5: 'C' in the rule `S -> B 'x' C` heads no rule"),
    (RULES + "A -> 'x' nan\n", "line 5: \"A -> 'x' nan\" is not a rule"),
    (RULES + "A -> 'x' 2\n", "with a probability from 0 to 1"),
    (RULES + "A -> 'x' 0.5\n", "rules.txt, lines 3, 5: the rules of 'A' sum to 1.5"),
    (RULES + "ROOT -> A 0.5\n", "rules.txt, lines 1, 5: the root distribution sum to 1.5"),
    (RULES + "ROOT -> X 0\n", "rules.txt, line 5: 'X' in the root distribution heads no rule"),
    (RULES + "A -> 'x' 0\nA -> 'y' 0.1\nA -> 'z' 0\n", "rules.txt, lines 3, 5, 6, ...: the rules of 'A' sum"),
    (RULES.replace("S -> A B", "S -> A C"), "rules.txt, line 2: 'C' in the rule S -> A C heads no rule"),
    ("", "rules.txt: the grammar has no lexical rule"),
])
def test_a_rule_file_that_says_two_things_is_refused_with_its_line(text, message, tmp_path, capsys):
    (tmp_path / "rules.txt").write_text(text)
    assert message in refused(capsys, "sample", "--grammar", tmp_path / "rules.txt", "-n", 1)


def test_rules_of_probability_zero_that_a_normal_form_leaves_out_are_counted(tmp_path, capsys):
    (tmp_path / "rules.txt").write_text(RULES + "S -> A 0\nA -> B 'x' A 0\n")
    assert main(["sample", "--grammar", str(tmp_path / "rules.txt"), "-n", "1"]) == 0
    said = capsys.readouterr()
    assert said.out == "hello world\n"
    assert "left out: 2 rules of probability 0 of " in said.err
    assert "(first: `S -> A`)" in said.err
    from_text((tmp_path / "rules.txt").read_text()).save(tmp_path / "g")
    assert main(["mask", "--grammar", str(tmp_path / "g"), "hello [MASK]"]) == 0
    assert "left out: 2 rules" in capsys.readouterr().err


def test_a_byte_order_mark_in_a_rule_file_is_harmless(tmp_path, capsys):
    (tmp_path / "rules.txt").write_bytes(b"\xef\xbb\xbf" + RULES.encode())
    assert main(["sample", "--grammar", str(tmp_path / "rules.txt"), "-n", "1"]) == 0
    assert capsys.readouterr().out == "hello world\n"
    assert from_text("\ufeff" + RULES).words == ("hello", "world")


def test_the_tags_of_the_penn_treebank_survive_a_rule_file(treebank, tmp_path, capsys):
    tags = ["''", "``", "#", "$", "-LRB-", "PRP$", ".", ":", '"']
    tree = " ".join(f"({tag} {tag})" for tag in tags)
    treebank.write_text(f"(S {tree})\n" * 40)
    assert main(["learn", "--treebank", str(treebank), "--out", str(tmp_path / "g"), "--cutoff", "0"]) == 0
    learned = PCFG.load(tmp_path / "g")
    written = from_text((tmp_path / "g" / "rules.txt").read_text(), "rules.txt")
    assert set(written.nonterminals) == set(learned.nonterminals)
    assert to_text(written) == to_text(learned)


def test_symbols_that_older_files_wrote_without_quotes_are_still_read():
    grammar = from_text("""ROOT -> S' 1\nS' -> '' " 1\n'' -> 'x' 1\n" -> '"' 1\n""")
    assert grammar.nonterminals == ("S'", "''", '"')


# ---- grammars that cannot be read ------------------------------------------------------------------------------------


def denied(path, *_, **__):
    raise PermissionError(13, "Permission denied", str(path))


@pytest.mark.parametrize("what", ["pathlib.Path.is_file", "pathlib.Path.read_text",
                                  "pcfg_artifact.system.storage.sha256"])
def test_an_unreadable_grammar_folder_npz_or_rule_file_is_refused(what, rules, tmp_path, capsys, monkeypatch):
    from_text(RULES).save(tmp_path / "g")
    # Permissions are not enforced for every user, so the refusal is injected.
    monkeypatch.setattr(what, denied)
    for grammar in (rules, tmp_path / "g") if what != "pcfg_artifact.system.storage.sha256" else (tmp_path / "g",):
        said = refused(capsys, "sample", "--grammar", grammar, "-n", 1)
        assert "Permission denied" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_grammar_folder_without_permission_is_refused(tmp_path, capsys):
    from_text(RULES).save(tmp_path / "g")
    (tmp_path / "g").chmod(0)
    assert "Permission denied" in refused(capsys, "sample", "--grammar", tmp_path / "g", "-n", 1)
    (tmp_path / "g").chmod(0o700)


@pytest.mark.parametrize("grammar", ["/dev/null/x", "x" * 300, "/dev/zero"])
def test_a_grammar_path_that_cannot_be_one_is_refused(grammar, capsys):
    refused(capsys, "sample", "--grammar", grammar, "-n", 1)


@pytest.mark.parametrize("change", [
    {"words": None}, {"words": [1, 2]}, {"interminals": [["S"]]}, {"preterminals": "AB"}, {"is_proper": "yes"}])
def test_a_grammar_folder_with_foreign_names_is_refused(change, tmp_path, capsys):
    from_text(RULES).save(tmp_path / "g")
    path = tmp_path / "g" / "grammar.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert "does not list names" in refused(capsys, "sample", "--grammar", tmp_path / "g", "-n", 1)


def test_a_grammar_archive_that_is_no_archive_is_refused(tmp_path, capsys, monkeypatch):
    from_text(RULES).save(tmp_path / "g")

    def no_archive(*_, **__):
        raise zipfile.BadZipFile("File is not a zip file")

    monkeypatch.setattr("numpy.load", no_archive)
    assert "grammar.npz is damaged" in refused(capsys, "sample", "--grammar", tmp_path / "g", "-n", 1)


# ---- counts and output folders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [
    ["parse", "--treebank", "embedded", "--limit", "-3"], ["parse", "--max-length", "0"], ["sample", "-n", "-1"],
    ["sample", "-n", "1", "--max-length", "-2"], ["mask", "[MASK]", "-n", "0"],
    ["sample", "-n", "1", "--max-length", "9" * 30], ["parse", "--limit", "9" * 500]])
def test_counts_that_are_too_small_or_too_large_are_refused(arguments, rules, capsys):
    said = refused(capsys, arguments[0], "--grammar", rules, *arguments[1:])
    assert "or more" in said or "expected at most 2,147,483,647" in said
    assert len(said) < 300


@pytest.mark.parametrize("option", ["--train", "--test", "--epochs"])
def test_the_counts_of_probe_are_refused_before_a_model_is_read(option, capsys):
    assert f"{option} is -5" in refused(capsys, "probe", "--model", "nowhere", "--treebank", "embedded", option, "-5")


@pytest.mark.parametrize(("option", "value"), [("--cutoff", "-1"), ("--smoothing", "-1"), ("--smoothing", "nan")])
def test_the_numbers_of_learn_are_refused(option, value, treebank, tmp_path, capsys):
    said = refused(capsys, "learn", "--treebank", treebank, "--out", tmp_path / "g", option, value)
    assert "or more" in said
    assert not (tmp_path / "g").exists()


def test_an_output_folder_without_a_possible_name_is_refused(treebank, rules, capsys):
    for out in ("x" * 300, ""):
        refused(capsys, "learn", "--treebank", treebank, "--out", out)
        refused(capsys, "sample", "--grammar", rules, "-n", 1, "--out", out)
    assert "File name too long" in refused(capsys, "--dry-run", "--out", "x" * 300)


@pytest.mark.parametrize("value", [
    "2026-13-45", "[" * 5000, "!!timestamp x", "!!int ''", "!!bool x", "!!float ''", "{[]: 1}", "9" * 5000, "\0", "*a"])
def test_a_set_value_that_yaml_cannot_make_a_value_of_is_refused(value, tmp_path, capsys):
    assert main(["--dry-run", "--out", str(tmp_path / "out"), "--set", f"grammar.cutoff={value}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "not valid YAML" in said
    assert len(said) < 1000


def test_a_folder_for_evalb_that_cannot_be_one_is_refused_before_anything_is_scored(rules, treebank, capsys,
                                                                                  monkeypatch):
    monkeypatch.setattr("pcfg_artifact.tools.parse.load_grammar", lambda _: pytest.fail("the grammar was read"))
    for folder in (treebank, treebank / "x", "x" * 300):
        refused(capsys, "parse", "--grammar", rules, "--treebank", treebank, "--evalb", folder)


def test_memory_that_is_not_there_is_said(rules, capsys, monkeypatch):
    def refuse(*_, **__):
        raise MemoryError

    monkeypatch.setattr("pcfg_artifact.tools.mask.load_grammar", refuse)
    assert "there is not enough memory" in refused(capsys, "mask", "--grammar", rules, "[MASK]")


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_parse_without_standard_input_is_refused(rules, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert "standard input is closed" in refused(capsys, "parse", "--grammar", rules)


def test_parse_of_bytes_that_are_no_text_is_refused(rules, tmp_path, capsys):
    for data, message in ((b"hello w\xf6rld\n", "cannot read sentences"), (b"hello\n\0\n", "holds a NUL")):
        (tmp_path / "s.txt").write_bytes(data)
        assert message in refused(capsys, "parse", "--grammar", rules, tmp_path / "s.txt")


class FullDisk(io.StringIO):
    """Takes what is written, as a buffer does, and fails when it is to keep it."""

    def flush(self):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("arguments", [["sample", "-n", "9"], ["mask", "hello [MASK]"], ["parse"]])
def test_a_full_disk_behind_standard_output_is_said(arguments, rules, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("hello world\n"))
    monkeypatch.setattr("sys.stdout", FullDisk())
    assert main([arguments[0], "--grammar", str(rules), *arguments[1:]]) == 2
    said = capsys.readouterr().err
    assert "error: No space left on device (standard output?)" in said


def test_closed_and_full_streams_end_a_real_process_with_exit_code_2(rules):
    command = f"{sys.executable} -m pcfg_artifact"
    script = (f"{command} mask --grammar {rules} 'hello [MASK]' >/dev/full; echo $?; "
              f"{command} parse --grammar {rules} <&-; echo $?")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False,
                          cwd=Path(__file__).parents[2])
    assert done.stdout.split() == ["2", "2"]
    assert "Traceback" not in done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("error: ")] == []


# ---- trees that every reader can read --------------------------------------------------------------------------------


def test_brackets_in_words_and_symbols_are_written_as_penn_writes_them(tmp_path, capsys, monkeypatch):
    (tmp_path / "rules.txt").write_text("ROOT -> S 1\nS -> ( ) 1\n( -> '(' 1\n) -> 'f(x)' 1\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("( f(x)\n"))
    for arguments in (["parse"], ["sample", "-n", "1", "--trees"]):
        assert main([arguments[0], "--grammar", str(tmp_path / "rules.txt"), *arguments[1:]]) == 0
        [tree], _ = parse_trees(capsys.readouterr().out, "output")
        assert tree == Tree("S", (Tree("-LRB-", (), "-LRB-"), Tree("-RRB-", (), "f-LRB-x-RRB-")))


@pytest.mark.parametrize(("text", "arguments"), [
    ("ROOT -> A 1\nA -> 'New York' 1\n", ["sample", "-n", "1"]),
    ("ROOT -> A 1\nA -> 'New\\tYork' 1\n", ["sample", "-n", "1", "--trees"]),
    ('ROOT -> "A B" 1\n"A B" -> \'x\' 1\n', ["sample", "-n", "1", "--trees"]),
    ('ROOT -> "A B" 1\n"A B" -> \'x\' 1\n', ["parse"]),
])
def test_blanks_in_words_or_symbols_are_refused_where_they_would_be_read_back_as_two(text, arguments, tmp_path, capsys):
    (tmp_path / "rules.txt").write_text(text)
    said = refused(capsys, arguments[0], "--grammar", tmp_path / "rules.txt", *arguments[1:])
    assert "could not be read back" in said


# ---- sampling and long sentences -------------------------------------------------------------------------------------


def test_a_symbol_that_never_ends_blocks_sampling_only_where_it_is_reached(tmp_path, capsys):
    path = tmp_path / "rules.txt"
    path.write_text(RULES + "E -> E E 1\n")
    assert main(["sample", "--grammar", str(path), "-n", "1"]) == 0
    path.write_text("ROOT -> S 0.5\nROOT -> E 0.5\n" + RULES[12:] + "E -> E E 1\n")
    assert "no finite expected length" in refused(capsys, "sample", "--grammar", path, "-n", 1)
    path.write_text("ROOT -> E 1\n" + RULES[12:] + "E -> E E 1\n")
    assert "ever ends in words" in refused(capsys, "sample", "--grammar", path, "-n", 1, "--max-length", 5)


def test_viterbi_refuses_a_sentence_whose_chart_does_not_fit(tiny_grammar, monkeypatch):
    monkeypatch.setattr("pcfg_artifact.parsing.decoding.available_memory", lambda: 10_000)
    assert viterbi(tiny_grammar, ["she", "eats", "fish"])[1] is not None
    with pytest.raises(UsageError, match="a sentence of 5,000 words needs 0.2 GB .* more than about 35 words"):
        viterbi(tiny_grammar, ["she"] + ["eats"] * 4998 + ["fish"])
