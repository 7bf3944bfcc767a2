"""The stage and the tool construct on a small world."""

import json

import numpy as np
import pytest
from small_treebank import write_treebank

from pcfg_artifact import cli
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.parsing.decoding import labelled_recall
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.run import config, pipeline
from pcfg_artifact.run.stage_folder import Folder

SMALL = ["sample.n_pretraining=10", "sample.n_validation=300", "sample.n_probe_train=5", "sample.n_probe_test=5",
         "construct.lengths=[5, 8]", "construct.n_per_length=1", "construct.n_training=60", "construct.n_parsed=12",
         "construct.n_interminals=3", "construct.n_preterminals=4", "construct.rank=2",
         "construct.merged_smoothing=0.0001"]


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    return write_treebank(tmp_path_factory.mktemp("treebank"), 500)


@pytest.fixture(scope="module")
def finished(treebank, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    profile = config.load_profile("smoke", SMALL, treebank)
    pipeline.run(profile, out, [stage for stage in pipeline.STAGES if stage.name in ("grammar", "sample", "construct")])
    return out


TABLES = {"grammar": {"grammar", "frequency", "treebank"}, "sample": {"sample"},
          "construct": {"sizes", "agreement", "constructed"}}


@pytest.mark.parametrize("stage", TABLES)
def test_only_tables_of_the_stage_are_written(finished, stage):
    assert {metric.table for metric in Folder(finished / stage).metrics()} == TABLES[stage]


@pytest.fixture(scope="module")
def numbers(finished) -> Numbers:
    return Numbers(Folder(finished / "construct").metrics())


def test_every_construction_is_measured_and_agrees(numbers):
    theorems = {"table": "agreement", "model": ["theorem_3.1", "theorem_3.2"]}
    approximations = {"table": "agreement", "model": ["few", "low_rank"], "grammar": ["vm", "novm"]}
    dense = {"table": "agreement", "model": "low_rank_dense", "grammar": ["vm", "novm"]}
    merged = {"table": "agreement", "model": "merged", "grammar": ["vm", "novm"]}
    for models in (theorems, approximations, dense, merged):
        assert all(m.value <= 1e-9 for m in numbers.select({**models, "metric": ["inside", "outside"]}))
    assert all(m.value <= 1e-9 for models in (theorems, merged)
               for m in numbers.select({**models, "metric": "one_mask"}))
    assert all(m.value == 1 for m in numbers.select({**approximations, "metric": "spans_within_1e-9"}))
    for model in ("theorem_3.1", "theorem_3.2"):
        by_layer = numbers.select({**theorems, "model": model, "layer": "all", "metric": "inside_or_outside"})
        assert [m.layer for m in by_layer] == list(range(1, 24))  # 2L - 1 with L = 12
    by_length = {**theorems, "group": "sentence length", "index": [5, 8], "metric": ["inside", "outside"]}
    assert len(numbers.select(by_length)) == 2 * 2 * 2


def test_sizes_stand_beside_the_claims(finished, numbers):
    sizes = {(m.grammar, m.model, m.metric, m.group): m.value for m in numbers.of_table("sizes")}
    n = PCFG.load(finished / "grammar" / "vm").n_nonterminals
    assert sizes["", "theorem_3.2", "dimensions", "claimed"] == 2 * n * 12 + 1
    assert sizes["", "theorem_3.2", "dimensions", "built"] == 2 * n * 12 + 1
    assert sizes["", "theorem_3.1", "dimensions", "built"] == (4 * n + 1) * 12
    assert sizes["vm", "low_rank", "heads", "built"] == 2
    assert sizes["vm", "merged", "heads", "built"] == sizes["vm", "few", "heads", "built"] == 3
    assert sizes["vm", "merged", "dimensions", "built"] == sizes["vm", "merged", "dimensions", "claimed"]
    for grammar, model, metric, group in sizes:
        if group == "built" and metric in ("layers", "heads"):
            assert sizes[grammar, model, metric, "built"] <= sizes[grammar, model, metric, "claimed"]


def test_the_example_is_the_parse_of_inside_outside_with_every_cell_filled_once(finished):
    found = json.loads((finished / "construct" / "example.json").read_text())
    grammar, n = PCFG.load(finished / "grammar" / "vm"), len(found["words"])
    chart = inside_outside(grammar, [found["words"]])[0]
    assert [tuple(span) for span in found["spans"]] == labelled_recall(chart)
    np.testing.assert_allclose(found["span_score"], chart.span_scores(), rtol=1e-9, atol=1e-15)
    inside = [tuple(cell[:2]) for layer in found["layers"] if layer["phase"] == "inside" for cell in layer["cells"]]
    assert len(inside) == len(set(inside)) == n * (n - 1) // 2
    outside = [tuple(cell[:2]) for layer in found["layers"] if layer["phase"] != "inside" for cell in layer["cells"]]
    assert len(outside) == len(set(outside)) == n * (n + 1) // 2


@pytest.mark.parametrize("model", ["3.1", "3.2", "few", "low-rank", "merged"])
def test_the_tool_prints_sizes_errors_and_the_parse(finished, model, tmp_path, capsys):
    picture = tmp_path / "filling.png"
    arguments = ["construct", "--grammar", str(finished / "grammar" / "novm"), "the dog saw a cat", "--model", model,
                 "--rank", "3", "--show-layer", "1", "--plot", str(picture)]
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert "layers " in said
    assert "largest relative error against" in said
    assert "((the dog) (saw (a cat)))" in said
    assert "layer 1: inside, spans of 2 words" in said
    assert "the dog\n" in said
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("arguments", "message"), [
    (["the dog", "--show-layer", "9"], "this model has layers 1 to 3"),
    ([""], "the sentence is empty"),
    (["the dog", "--max-length", "1"], "2 words was given to a construction for 1 to 1 words"),
    (["the dog", "--max-length", "-2"], "max_length is -2, expected 1 or more"),
    (["the dog", "--plot", "chart.pdf"], "expected .png or .svg")])
def test_the_tool_refuses_what_makes_no_sense(finished, arguments, message, capsys):
    assert cli.main(["construct", "--grammar", str(finished / "grammar" / "vm"), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_sentence_without_probability_is_said_to_have_none(finished, capsys):
    assert cli.main(["construct", "--grammar", str(finished / "grammar" / "vm"), "saw saw"]) == 0
    assert "gives this sentence no probability" in capsys.readouterr().out


def test_a_length_that_no_sampled_sentence_has_is_refused(finished, treebank, tmp_path, capsys):
    settings = [option for key in [*SMALL, "construct.lengths=[4]"] for option in ("--set", key)]
    assert cli.main(["--profile", "smoke", "--treebank", treebank, "--out", str(finished), "--only", "construct",
                     *settings]) == 1
    assert "no sampled sentence has 4 words" in capsys.readouterr().err
