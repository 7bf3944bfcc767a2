"""Runs of given grammars: no treebank, no English, no Penn labels; what is unusable is refused before any training."""

import contextlib
import csv
import html
import io
import json
import re

import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.metrics.schema import GIVEN
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.stage_folder import Folder, Manifest

NUMBERS = """
ROOT -> 10 1
10 -> 11 12 0.6
10 -> 10 '5' 11 0.4
11 -> '1' 0.5
11 -> '2' 12 0.5
12 -> '3' 0.4
12 -> 11 11 0.3
12 -> '(' 12 ')' 0.3
"""
NLTK = """
S -> NP VP [1.0]
VP -> V NP [0.6] | V [0.4]
NP -> Det N [0.7] | NP PP [0.3]
PP -> P NP [1.0]
V -> 'saw' [0.5] | 'ran' [0.5]
N -> 'boy' [0.5] | 'hill' [0.5]
P -> 'with' [1.0]
Det -> 'the' [1.0]
"""
SMALL = ["sample.n_pretraining=300", "sample.n_validation=100", "sample.n_probe_train=60", "sample.n_probe_test=60",
         "grammar.n_train=400", "grammar.n_test=120", "marginals.n_masked=10", "approximate.n_test=20",
         "approximate.n_training=40", "approximate.n_drawn=8", "approximate.n_ablation_test=5",
         "approximate.n_ablation_drawn=5", "construct.n_training=20", "construct.n_parsed=5",
         "construct.n_per_length=1"]
TRAINED = ["pretrain.models=[A2L1]", "pretrain.causal_models=[]", "pretrain.width=8", "pretrain.batch_size=32",
           "pretrain.steps=6", "pretrain.schedule_steps=6", "pretrain.warmup_steps=2", "pretrain.save_every=6",
           "pretrain.n_kept=0", "pretrain.validate_every=6", "pretrain.n_curve=20", "pretrain.n_exact=20",
           "probe.n_train=50", "probe.n_test=40", "probe.probes=[linear]", "probe.random_weights=true",
           "probe.adjacent=none", "attention.n_sentences=10", "incremental.n_exact=10", "incremental.n_train=30",
           "incremental.n_test=20", "intervene.n_train=40", "intervene.n_test=40", "intervene.n_questions=8",
           "dynamics.n_train=30", "dynamics.n_test=20", "dynamics.n_questions=6", "dynamics.n_loss=10"]
HERE = ["machine.n_workers=1", "machine.device=cpu"]


def run(source, out, *more, settings=(*SMALL, *TRAINED, *HERE)):
    return main(["--grammar", str(source), "--out", str(out), *more,
                 *(part for setting in settings for part in ("--set", setting))])


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """(exit code, folder of the run, rule file) of a grammar whose words and symbols are numbers and brackets."""
    folder = tmp_path_factory.mktemp("numbers")
    rules = folder / "rules.txt"
    rules.write_text(NUMBERS)
    return run(rules, folder / "run"), folder / "run", rules


@pytest.fixture(scope="module")
def hierarchy(tmp_path_factory):
    """(exit code, folder) of a grammar with one tree for all sentences."""
    folder = tmp_path_factory.mktemp("rhm") / "run"
    return run("zoo:rhm,symbols=4,rules=2", folder), folder


def metrics(folder):
    return [metric for stage in folder.iterdir() if stage.is_dir() for metric in Folder(stage).metrics()]


def report_of(folder):
    return (folder / "verify" / "report.html").read_text()


@pytest.mark.parametrize("which", ["numbers", "hierarchy"])
def test_a_run_of_a_given_grammar_is_complete_and_passes(which, request):
    code, folder, *_ = request.getfixturevalue(which)
    assert code == 0
    assert {metric.grammar for metric in metrics(folder)} == {"", GIVEN}
    assert {metric.setting for metric in metrics(folder)} <= {"", "sampled", "tree", "posterior"}
    assert "is of a given grammar" in (folder / "verify" / "summary.txt").read_text()


@pytest.mark.parametrize("which", ["numbers", "hierarchy"])
def test_its_report_has_no_empty_table_and_says_what_is_left_out(which, request):
    _, folder, *_ = request.getfixturevalue(which)
    tables = re.findall(r"<tbody>(.*?)</tbody>", report_of(folder), flags=re.DOTALL)
    assert len(tables) > 20
    assert all("<td" in table for table in tables)
    for path in (folder / "verify" / "tables").glob("*.csv"):
        rows = list(csv.reader(path.read_text().splitlines()))
        assert any(any(row[1:]) for row in rows[1:]), path
    assert "Left out, since the run is of a given grammar" in html.unescape(report_of(folder))


def test_a_grammar_whose_spans_are_never_in_doubt_has_no_interventions_and_the_report_says_why(hierarchy):
    _, folder = hierarchy
    reason = Manifest.read(folder / "intervene").facts["left out"]
    assert f"Left out: intervene, since {reason}" in html.unescape(report_of(folder))
    assert not Folder(folder / "intervene").metrics()


def test_convention_without_punctuation_drops_no_word_where_tags_are_not_english(numbers):
    scores = {(m.model, m.convention): m.value for m in metrics(numbers[1])
              if m.table == "parsers" and m.metric == "corpus_f1"}
    assert scores["IO", "KIM"] == scores["IO", "PN"] > 0


def test_brackets_among_the_words_stay_what_they_are(numbers):
    shown = json.loads((numbers[1] / "construct" / "explored.json").read_text())
    words = {word for sentence in shown for word in sentence["words"]}
    assert {"(", ")"} <= words <= set("1235()")


@pytest.mark.parametrize("source", ["zoo:cfg3b", "zoo:dyck", "nltk"])
def test_other_grammars_are_sampled_parsed_approximated_and_constructed(source, tmp_path):
    if source == "nltk":
        source = tmp_path / "toy.cfg"
        source.write_text(NLTK)
    assert run(source, tmp_path / "run", "--to", "construct", settings=(*SMALL, *HERE)) == 0
    errors = [m.value for m in Folder(tmp_path / "run" / "construct").metrics() if m.table == "agreement"
              and m.metric in ("inside", "outside") and m.model in ("theorem_3.1", "theorem_3.2")]
    assert max(errors) < 1e-9


def test_lengths_and_widths_are_those_that_the_grammar_has(capsys):
    profile = load_profile("smoke", grammar="zoo:rhm")
    assert (profile.construct.lengths, profile.probe.widths) == ((8,), (2, 4))
    long = load_profile("smoke", grammar="zoo:cfg3b")
    assert long.grammar.longest == long.construct.max_length == 24
    assert "grammar.longest" in capsys.readouterr().err
    assert load_profile("smoke", grammar="zoo:english").construct == load_profile("smoke").construct


HOSTILE = {
    "no rules": "", "no rule": "S goes to NP VP", "mass": "ROOT -> S 1\nS -> 'a' 0.4",
    "endless": "ROOT -> S 1\nS -> S S 1",
    "critical": "ROOT -> S 1\nS -> S S 0.6\nS -> 'a' 0.4", "one word": "ROOT -> S 1\nS -> 'a' 1",
    "undefined": "ROOT -> S 1\nS -> A B 1\nA -> 'a' 1", "reserved": "ROOT -> S 1\nS -> A A 1\nA -> '<mask>' 1",
    "blank": "ROOT -> S 1\nS -> A A 1\nA -> 'a b' 1", "nan": "ROOT -> S 1\nS -> 'a' 'b' nan", "bytes": "\ud800"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_rule_file_is_refused_before_anything_is_made(name, tmp_path, capsys):
    rules = tmp_path / "rules.txt"
    rules.write_bytes(HOSTILE[name].encode(errors="surrogatepass"))
    assert run(rules, tmp_path / "run") == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not any((tmp_path / "run").glob("*/metrics.csv"))


def test_two_origins_are_refused(capsys):
    assert main(["--grammar", "zoo:rhm", "--treebank", "embedded", "--dry-run"]) == 2
    assert main(["--grammar", "zoo:nothing", "--dry-run"]) == 2
    assert main(["--grammar", "zoo:rhm", "--set", "marginals.target=latent", "--dry-run"]) == 2
    assert "the zoo has no grammar 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize("command", [
    ["parse", "2 3 1 1"], ["parse", "2 3 1 1", "--json"], ["parse", "2 3 1 1", "--decode", "viterbi", "--unbinarise"],
    ["parse", "2 3 1 1", "--kbest", "2"], ["parse", "2 3 1 1", "--entropy", "--json"],
    ["sample", "-n", "2", "--given", "2 3 1 1"], ["sample", "-n", "2", "--length", "4:9"], ["mask", "2 [MASK] 1 1"],
    ["next", "2 3"], ["surprisal", "2 3 1 1"], ["surprisal", "2 3 1 1", "--json"],
    ["sample", "-n", "3"], ["sample", "-n", "3", "--trees"], ["construct", "2 3 1 1"],
    ["construct", "2 3 1 1", "--model", "merged"], ["construct", "2 3 1 1", "--model", "low-rank"],
    ["intervene", "2 [MASK] 1 [MASK]", "--span", "0:2", "--model", "MODEL", "--sentences", "30"]])
def test_tools_take_a_grammar_of_numbers(numbers, command, capsys):
    name, *rest = (str(numbers[1] / "pretrain" / "models" / "A2L1") if part == "MODEL" else part for part in command)
    assert main([name, "--grammar", str(numbers[2]), *rest]) == 0
    assert capsys.readouterr().out


@pytest.fixture(scope="module")
def trees(numbers, tmp_path_factory):
    """A treebank whose labels and words are numbers and brackets."""
    path = tmp_path_factory.mktemp("trees") / "trees.mrg"
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["sample", "--grammar", str(numbers[2]), "-n", "80", "--trees"]) == 0
    path.write_text(out.getvalue())
    return path


@pytest.mark.parametrize("command", [
    ["learn", "--treebank", "TREES", "--out", "OUT", "--estimator", "spectral", "--states", "2", "2"],
    ["states", "--treebank", "TREES", "--out", "OUT", "--states", "1", "2"],
    ["parse", "--grammar", "RULES", "--treebank", "TREES", "--labelled"],
    ["probe", "--grammar", "RULES", "--treebank", "TREES", "--model", "MODEL"],
    ["export", "--run", "RUN", "--out", "OUT"], ["compare", "RUN", "RUN"]])
def test_tools_take_trees_and_runs_of_numbers(numbers, trees, command, tmp_path, capsys):
    names = {"TREES": trees, "RUN": numbers[1], "RULES": numbers[2], "OUT": tmp_path / "out",
             "MODEL": numbers[1] / "pretrain" / "models" / "A2L1"}
    assert main([str(names.get(part, part)) for part in command]) == 0
    assert capsys.readouterr().out
    if command[0] == "export":
        for page in ("README.md", "croissant.json"):
            assert "the one that the run was given (rules.txt)" in (tmp_path / "out" / page).read_text()


def test_the_zoo_is_listed_and_a_rule_file_is_measured(numbers, capsys):
    assert main(["zoo", "rhm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["numbers"]["mean_length"] == [8.0, 0.0]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["zoo", str(numbers[2]), "--measure", "-n", "30"]) == 0
    assert "30 sentences" in out.getvalue()
