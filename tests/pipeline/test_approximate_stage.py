"""The stage `approximate` on a small world: every row and column of its tables, the same whatever the threads."""

import pytest

from pcfg_artifact import config, pipeline
from pcfg_artifact.artifacts import Folder, StageDir
from pcfg_artifact.grammar import PCFG, sample_trees
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.owners import tables_of
from pcfg_artifact.stages import approximate

SMALL = ["approximate.n_interminals=[2, 3]", "approximate.n_preterminals=3", "approximate.n_projected=3",
         "approximate.ranks=[2]", "approximate.ablation_ranks=[2]", "approximate.merged_interminals=[2]",
         "approximate.n_test=20", "approximate.n_training=20", "approximate.n_drawn=10",
         "approximate.n_ablation_test=10", "approximate.n_ablation_drawn=5"]
COLUMNS = {"sentence_f1", "corpus_f1", "sentence_f1_KIM", "corpus_f1_KIM", "failed", "perplexity", "undefined"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Metric rows of the stage, run twice: with one thread and with three."""
    root = tmp_path_factory.mktemp("world")
    source = PCFG.from_rules(
        root={"S": 1.0},
        binary=[("S", "NP", "VP", 1.0), ("VP", "VBD", "NP", 0.6), ("VP", "VP", "PP", 0.4), ("PP", "IN", "NP", 1.0),
                ("NP", "DT", "NN", 0.7), ("NP", "NP", "PP", 0.3)],
        lexical=[("VBD", "saw", 0.5), ("VBD", "ate", 0.5), ("IN", "with", 0.5), ("IN", "in", 0.5), ("DT", "the", 0.6),
                 ("DT", "a", 0.4), ("NN", "dog", 0.4), ("NN", "cat", 0.3), ("NN", "park", 0.3)])
    (root / "treebank.trees").write_text("".join(f"{tree}\n" for tree in sample_trees(source, 400, 1, max_length=20)))
    profile = config.load_profile("smoke", SMALL, str(root / "treebank.trees"))
    pipeline.run(profile, root / "run", pipeline.select(only="grammar"))
    found = []
    for n_threads in (1, 3):
        out = StageDir(root / f"approximate-{n_threads}")
        approximate.run(profile.approximate, Inputs({"grammar": root / "run" / "grammar"}, ""), out,
                        Machine("cpu", n_threads))
        found.append(Folder(out.root).metrics())
    return found


def test_number_of_threads_changes_no_number(measured):
    assert measured[0] == measured[1]


def test_every_table_has_its_rows_and_columns_for_both_variants(measured):
    cells = {(metric.table, metric.row): set() for metric in measured[0]}
    for metric in measured[0]:
        cells[metric.table, metric.row].add(metric.column)
    expected = {"table1": {"exact", "I=all,P=3", "I=2,P=3", "I=3,P=3"},
                "table2": {"I=2,P=3", "I=3,P=3", "k=2,I=3,P=3"}, "merged": {"I=2,P=3"}}
    for suffix in ("", "_novm"):
        for table, rows in expected.items():
            assert {row for name, row in cells if name == table + suffix} == rows
        ablations = {row for name, row in cells if name == "ablation" + suffix}
        assert {"few", "low rank, k=2", "shared W, k=2", "all interminals, k=2", "separate W, k=2"} <= ablations
    for columns in cells.values():
        assert columns >= COLUMNS


def test_exact_row_is_never_worse_at_predicting_and_merged_grammars_never_fail(measured):
    value = {(metric.table, metric.row, metric.column): metric.value for metric in measured[0]}
    for suffix in ("", "_novm"):
        exact = value["table1" + suffix, "exact", "perplexity"]
        assert all(v >= exact - 1e-9 for (table, _, column), v in value.items()
                   if table in ("table1" + suffix, "merged" + suffix) and column == "perplexity")
        assert value["merged" + suffix, "I=2,P=3", "failed"] == 0.0
        assert value["merged" + suffix, "I=2,P=3", "undefined"] == 0.0


def test_only_tables_of_the_stage_are_written(measured):
    assert {metric.table for metric in measured[0]} == set(tables_of("approximate"))
