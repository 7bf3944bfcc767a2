"""Names of cells are made in one place, and every table has an owner that can be imported."""

import ast
import csv
import importlib
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pytest

import pcfg_artifact
from pcfg_artifact import cells, pipeline
from pcfg_artifact.freshness import stage_code
from pcfg_artifact.owners import OWNERS
from pcfg_artifact.roles import CAUSAL, find_roles, masked_counterpart, model_size, roles_of

ROOT = Path(pcfg_artifact.__file__).parent
RECORDED = Path(__file__).parents[2] / "expected_results"
FUNCTIONS = sorted({function for owner in OWNERS.values() for function in owner.computed_by.values()})


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_function_behind_a_table_can_be_imported(function):
    module, _, name = function.partition(":")
    assert isinstance(reduce(getattr, name.split("."), importlib.import_module(module)), Callable)


def test_every_owner_is_a_stage_that_reaches_its_function():
    for table, owner in OWNERS.items():
        assert owner.title
        for stage, function in owner.computed_by.items():
            assert stage in pipeline.NAMES, table
            file = function.partition(":")[0].removeprefix("pcfg_artifact.").replace(".", "/") + ".py"
            assert file in stage_code(stage), table


@pytest.mark.parametrize("profile", ["smoke", "reduced"])
def test_every_recorded_table_has_an_owner(profile):
    lines = (RECORDED / profile / "expected.csv").read_text().splitlines()
    tables = {row["table"] for row in csv.DictReader(line for line in lines if not line.startswith("#"))}
    assert tables
    assert tables <= set(OWNERS)


def test_no_cell_is_named_outside_of_cells():
    """A Metric's table, row and column come from a constructor, and no Cell is put together on the spot."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if path.name != "cells.py" and isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [] if node.args and isinstance(node.args[0], ast.Starred) else node.args[:3]
                refused = {"Metric": (ast.Constant, ast.JoinedStr), "Cell": (ast.JoinedStr,)}.get(node.func.id, ())
                assert not [part for part in names if isinstance(part, refused)], f"{path}, line {node.lineno}"


def test_the_2_layer_probe_concerns_the_probing_stages_alone():
    concerned = {stage.name for stage in pipeline.STAGES if "probing/two_layer_probe.py" in stage_code(stage.name)}
    assert concerned == {"probe", "control", "intervene", "dynamics"}


def test_indexed_names_are_read_back_and_others_are_not():
    for names in (cells.LAYER, cells.SPAN_LENGTH, cells.SPAN_WIDTH, cells.HEAD, cells.STATES):
        assert [names.index(names(i)) for i in (0, 7, 12)] == [0, 7, 12]
        assert names.index(f"{names.prefix}x") is None
    assert cells.LAYER.index("l=2") is None
    assert cells.curve_step(cells.loss_curve("A1L1", 40, "training").column, "training") == 40
    assert cells.curve_step(cells.loss_curve("A1L1", 40, "training").column, "validation") is None


def test_probes_are_read_off_table_4_in_its_order():
    made = [cells.best_f1(probe, setting.name, cells.SENTENCE_F1, "A1L1")
            for probe in ("2-layer", "a b") for setting in cells.SETTINGS]
    assert cells.probes_in(made) == ("2-layer", "a b")


def test_roles_are_those_of_the_paper_and_other_names_are_passed_over():
    roles = roles_of(["A12L12", "A12L1", "A12L3", "A3L12", "A24L12", "A12L12-random", "unigram"])
    assert (roles.base, roles.fewest_layers, roles.fewest_heads) == ("A12L12", "A12L1", "A3L12")
    assert roles.models == ("A3L12", "A12L1", "A12L3", "A12L12", "A24L12")
    assert roles_of(["x"]).base is None


def test_causal_models_play_a_role_of_their_own_alone():
    made = [*(cells.perplexity(model, "validation") for model in ("A4L3", "A4L1")),
            *(cells.next_word(model, "kl") for model in ("C4L12", "C4L3"))]
    roles = find_roles(made)
    assert roles.models == ("A4L1", "A4L3")
    assert roles.causal == ("C4L3", "C4L12")
    assert masked_counterpart("C4L12") == "A4L12"
    assert model_size("C4L3") is None
    assert model_size("C4L3", CAUSAL) == (4, 3)


def test_corpus_f1_counts_skipped_sentences_except_where_it_stands_beside_accuracies():
    from pcfg_artifact.parsing import span_f1
    from pcfg_artifact.treebank.brackets import parse_trees

    trees, _ = parse_trees("(S (NP (DT the) (NN dog)) (VP (VBZ eats) (NN meat)))\n(S (NN go) (. .))", "test")
    f1 = span_f1(trees, [{(0, 2), (2, 4)}, {(0, 2)}], "KIM")
    assert cells.f1_columns(f1) == {"sentence_f1_KIM": (100.0, 1), "corpus_f1_KIM": (100.0, 2)}
    assert cells.f1_columns(f1, "_x", counts_skipped=False) == {"sentence_f1_KIM_x": (100.0, 1),
                                                                "corpus_f1_KIM_x": (100.0, 1)}
