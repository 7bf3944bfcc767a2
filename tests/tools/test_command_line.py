"""What is refused: exit code 2 (1 for a damaged artifact), one clear message on standard error, no traceback."""

import pytest

from pcfg_artifact.cli import TOOLS, main

TREES = "(S (NP (PRP she)) (VP (VBZ runs)))\n" * 40


@pytest.fixture
def treebank(tmp_path):
    path = tmp_path / "trees.ptb"
    path.write_text(TREES)
    return str(path)


def refused(capsys, *arguments, code=2):
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    return captured.err


@pytest.mark.parametrize(("arguments", "message"), [
    (["--profile", "smok"], "did you mean 'smoke'"),
    (["--only", "grammer"], "unknown stage 'grammer'"),
    (["--from", "sample", "--to", "grammar"], "comes after"),
    (["--only", "sample", "--to", "grammar"], "--only runs one stage"),
    (["--set", "pretrain.models=[A5L2]"], "width 64 is not divisible by 5 heads"),
    (["lern"], "unknown tool 'lern'"),
    (["--frobnicate"], "unrecognized arguments"),
    (["--set", "sample.x=1"], "unknown key 'sample.x'"),
    (["--treebank", "/nowhere/at/all"], "no treebank at"),
    (["--treebank", "", "--dry-run"], "the treebank has no name"),
    (["--treebank", " "], "the treebank has no name"),
    (["--executor", "", "--dry-run"], "--executor is ''; expected dask://HOST:PORT"),
    (["learn"], "the following arguments are required"),
    (["sample", "--grammar", "/nowhere", "-n", "3"], "no grammar at"),
])
def test_a_wrong_request_is_refused(arguments, message, tmp_path, capsys):
    out = ["--out", tmp_path / "out"] if arguments[0].startswith("-") else []
    assert message in refused(capsys, *arguments, *out)


def test_an_output_path_that_is_a_file_is_refused(treebank, tmp_path, capsys):
    (tmp_path / "file").write_text("precious")
    assert "is a file" in refused(capsys, "--treebank", treebank, "--out", tmp_path / "file")
    assert "is a file" in refused(capsys, "learn", "--treebank", treebank, "--out", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"


def test_an_output_folder_that_cannot_be_made_is_refused(treebank, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert "cannot use" in refused(capsys, "--treebank", treebank, "--out", tmp_path / "file" / "below")


@pytest.mark.parametrize(("text", "message"), [("", "empty"), ("(S (NP she)", "line 1"), ("hello", "line 1")])
def test_an_unusable_treebank_is_refused(text, message, tmp_path, capsys):
    path = tmp_path / "bad.ptb"
    path.write_text(text)
    said = refused(capsys, "learn", "--treebank", path, "--out", tmp_path / "g")
    assert str(path.name) in said
    assert not (tmp_path / "g").exists()


def test_a_stage_without_its_input_says_which_one_to_run(treebank, tmp_path, capsys):
    said = refused(capsys, "--only", "sample", "--treebank", treebank, "--out", tmp_path / "out")
    assert "needs 'grammar'" in said


def test_sample_refuses_numbers_that_make_no_sense(treebank, tmp_path, capsys):
    assert main(["learn", "--treebank", treebank, "--out", str(tmp_path / "g"), "--cutoff", "0"]) == 0
    capsys.readouterr()
    assert "-n is -1" in refused(capsys, "sample", "--grammar", tmp_path / "g", "-n", -1)
    assert "shortest sentence" in refused(capsys, "sample", "--grammar", tmp_path / "g", "-n", 1, "--max-length", 1)


def test_a_rule_file_serves_as_a_grammar(tmp_path, capsys):
    (tmp_path / "rules.txt").write_text("ROOT -> S 1\nS -> A B 1\nA -> 'hello' 1\nB -> 'world' 1\n")
    assert main(["sample", "--grammar", str(tmp_path / "rules.txt"), "-n", "2"]) == 0
    assert capsys.readouterr().out == "hello world\nhello world\n"


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_has_help_with_an_example(tool, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([tool, "--help"])
    assert stopped.value.code == 0
    assert f"example: run_all.sh {tool}" in capsys.readouterr().out


def test_dry_run_prints_every_stage_and_writes_nothing(treebank, tmp_path, capsys):
    assert main(["--dry-run", "--treebank", treebank, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "grammar" in printed
    assert "grammar will be made" in printed
    assert not (tmp_path / "out").exists()


def test_the_paper_plan_prints_without_its_treebank(tmp_path, capsys):
    missing = str(tmp_path / "no" / "ptb")
    assert main(["--profile", "paper", "--dry-run", "--treebank", missing, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "cannot run yet: no treebank at" in printed
    assert "8 GPUs" in printed
    assert "A24L12" in printed


def test_what_cleaning_takes_out_of_a_treebank_is_counted_on_the_screen(tmp_path, capsys):
    tree = "( (IP-MAT (NP-SBJ *con*) (VBDI for-fara) (NP-OB1 (N menn-madur))) (ID 1150.X,.1))\n"
    (tmp_path / "a.psd").write_text((tree + "( (CODE <P_3>))\n") * 20)
    assert main(["learn", "--treebank", str(tmp_path), "--out", str(tmp_path / "g"), "--cutoff", "0"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == ["removed: 40 leaves and nodes that hold no words (CODE, ID, METADATA)",
                    "removed: 20 traces and empty words", "removed: 20 trees without a word",
                    "removed: 20 nodes left without a word", "removed: 40 function tags and indices of labels",
                    "removed: 20 outer brackets",
                    "leaves are word-lemma: 40 lemmas cut off (detected; --leaf-format plain keeps them)"]
    run = tmp_path / "run"
    assert main(["--treebank", str(tmp_path / "a.psd"), "--only", "grammar", "--set", "grammar.cutoff=0",
                 "--out", str(run)]) == 0  # and so does a run
    counted = capsys.readouterr().err.splitlines()[1:-1]
    assert counted == [*said[:-1], "leaves are word-lemma: 40 lemmas cut off (detected)"]
