"""Tables: every number in one place, the paper's beside it, and where it comes from, for programs and for readers."""

import csv
import html
import importlib
from collections import Counter
from collections.abc import Callable
from functools import reduce

import pytest

from pcfg_artifact.errors import ConfigError
from pcfg_artifact.judge.paper import Printed
from pcfg_artifact.judge.tables import lay_out, to_csv
from pcfg_artifact.metrics import views
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.metrics.views import TABLES, all_views, is_exact, load_views
from tests.judge.toys import ENCODER, GRAMMAR, PARSER, PROBE, made, with_toys

FUNCTIONS = sorted({function for view in load_views() for function in view.functions.values()})
F1 = {"table": "parsing", "convention": "PB", "metric": "sentence_f1"}
AT_A_LAYER = {**F1, "probe": "linear", "setting": "treebank", "input": "EOS"}
SMALL = Numbers([made(105.0, "perplexity", table="perplexity", model="A4L3", group="validation", metric="perplexity"),
                 made(61.234, **AT_A_LAYER, model="A4L3", layer=2), made(50.0, **AT_A_LAYER, model="A4L3", layer=0),
                 made(90.0, **F1, model="IO", setting="treebank")])


def table_of(tables, name):
    return next(table for table in tables if table.id == name)


def words(table):
    """Everything that a reader finds at the sides of a table."""
    return " ".join([table.title, *table.rows.values(), *table.columns.values()])


# ---- views -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_behind_a_table_can_be_imported(function):
    module, _, name = function.partition(":")
    assert isinstance(reduce(getattr, name.split("."), importlib.import_module(module)), Callable)


def test_every_view_names_its_functions_and_reads_tables_that_a_stage_writes():
    for view in load_views():
        assert view.functions, view.id
        assert view.tables <= set(TABLES), view.id
    assert {table for view in load_views() for table in view.tables} == set(TABLES)
    assert {view.paper for view in load_views() if view.paper} == {f"Table {n}" for n in range(1, 9)}


def test_only_numbers_of_stages_without_training_are_exact():
    assert all(map(is_exact, ("treebank", "frequency", "sample", "parsers", "optimum", "sizes", "agreement",
                              "constructed", "approximation", "approximation_cost")))
    assert not any(map(is_exact, ("ablation", "perplexity", "parsing", "marginals", "control", "a new table")))


def test_every_number_of_a_run_is_in_a_view_and_alone_in_its_place(smoke_numbers):
    shown = all_views(smoke_numbers)
    assert {metric.key for _, metrics in shown for metric in metrics} == set(smoke_numbers.by_key)
    assert [view.id for view, _ in shown] == [view.id for view in load_views()]  # none is left for a table of its own
    for view, metrics in shown:
        names = {"grammar", *view.rows, *view.columns}
        if not view.figure:
            places = Counter(tuple(getattr(metric, name) for name in sorted(names)) for metric in metrics)
            assert [place for place, n in places.items() if n > 1] == [], view.id


def test_rows_and_columns_have_different_labels(smoke_numbers):
    for table in lay_out(with_toys(smoke_numbers), [], {}):
        for labels in (table.rows.values(), table.columns.values()):
            assert len(set(labels)) == len(labels), table.id


@pytest.mark.parametrize(("change", "message"), [
    ({"row": ["model"]}, "unknown keys"),
    ({"rows": ["modle"]}, "no dimension"),
    ({"select": {"table": "parsing"}}, "must name a table and a metric"),
    ({"select": {"table": "parsing", "layer": "deepest", "metric": "accuracy"}}, "layer is 'deepest'"),
    ({"shows": "median"}, "shows is"),
    ({"rows": []}, "several values of model"),
])
def test_a_view_that_cannot_be_meant_is_refused(change, message):
    good = {"id": "x", "title": "X", "rows": ["model"], "columns": ["metric"], "functions": {},
            "select": {"table": "parsing", "model": "all", "metric": "accuracy"}}
    assert views._parse(good, {}).rows == ("model",)
    with pytest.raises(ConfigError, match=message):
        views._parse({**good, **change}, {})


# ---- what is new appears ---------------------------------------------------------------------------------------------


def test_a_new_probe_parser_encoder_and_grammar_appear_without_a_change_to_any_file(smoke_numbers):
    tables = lay_out(with_toys(smoke_numbers), [], {})
    for name in ("table4", "table5", "table6", "table8", "best_layer", "sensitivity"):
        assert PROBE in words(table_of(tables, name)), name
    for name in ("table4", "parsers"):
        assert PARSER in words(table_of(tables, name)), name
    for name in ("table3", "table4", "table5", "masked_words", "best_layer"):
        assert ENCODER in words(table_of(tables, name)), name
    for name in ("table1_toy-grammar", "table2_toy-grammar", "ablation_toy-grammar", "grammar", "sizes", "agreement"):
        assert GRAMMAR in words(table_of(tables, name)), name


def test_numbers_that_no_view_shows_get_a_table_of_their_own():
    approximation = {"table": "approximation", "grammar": "vm", "convention": "PB"}
    new = [made(1.0, table="a new/table", model=model, layer=layer, metric="score") for model in ("a", "b")
           for layer in (1, 2)]
    known, other = (made(80.0, **approximation, model=model, size=20, metric="sentence_f1") for model in ("few", "toy"))
    tables = lay_out(Numbers([*new, known, other]), [], {})
    table = table_of(tables, "a-new-table")
    assert list(table.rows.values()) == ["a, layer 1", "a, layer 2", "b, layer 1", "b, layer 2"]
    assert list(table.columns.values()) == ["score"]
    others = table_of(tables, "approximation_others")
    assert others.title == "approximation, vm, toy, PB, size 20: numbers that no other table shows"
    assert [entry.metric for entry in others.entries.values()] == [other]
    assert [entry.metric for entry in table_of(tables, "table1").entries.values()] == [known]


# ---- layout ----------------------------------------------------------------------------------------------------------


def test_a_table_says_which_layer_its_best_numbers_come_from():
    tables = lay_out(SMALL, [], {})
    head = 'row,"treebank text, sentence F1","treebank text, sentence F1 (layer)"\n'
    assert to_csv(table_of(tables, "table4")) == (head + 'Inside-Outside,90.00,\n"linear, A4L3",61.23,2\n')
    assert to_csv(table_of(tables, "best_layer")) == 'row,treebank text\n"linear, A4L3",2\n'


def test_the_papers_number_of_the_model_in_the_same_role_stands_beside_ours():
    dims = {**AT_A_LAYER, "layer": "best"}
    paper = [Printed("Table 4", {**F1, "model": "IO", "setting": "treebank"}, 78.77, 4.0, "why"),
             Printed("Table 4", {**dims, "model": "A12L12"}, 69.31, 5.0, "why"),
             Printed("Table 4", {**dims, "model": "A24L12"}, 70.0, 5.0, "why"),  # plays no role here
             Printed("Section 1", {**dims, "model": "A12L12", "layer": 0}, 39.0, 5.0, "why")]
    tables = lay_out(SMALL, paper, {})
    table = table_of(tables, "table4")
    assert [(one.metric.value, one.paper.value) for one in table.entries.values()] == [(90.0, 78.77), (61.234, 69.31)]
    assert [t.id for t in tables if t.is_paper] == ["table4", "windows"]  # which has layer 0
    rows = list(csv.DictReader(to_csv(table).splitlines()))
    column = "treebank text, sentence F1"
    assert [[row[column], row[f"{column} (paper)"], row[f"{column} (difference)"]] for row in rows] == [
        ["90.00", "78.77", "+11.23"], ["61.23", "69.31", "-8.076"]]


def test_numbers_that_differ_are_marked_where_they_are_shown_themselves():
    at_best = next(metric for metric in SMALL.metrics if metric.layer == 2)
    for verdict, mark in (("differs", "*"), ("mean differs", "*"), ("agrees", ""), ("not judged", "")):
        tables = lay_out(SMALL, [], {at_best.key: verdict})
        assert f"61.23{mark}," in to_csv(table_of(tables, "table4"))
        assert "*" not in to_csv(table_of(tables, "best_layer"))


def test_approximations_are_said_in_words_and_every_grammar_has_its_table(smoke_numbers):
    tables = lay_out(smoke_numbers, [], {})
    assert list(table_of(tables, "table1").rows.values()) == [
        "exact algorithm", "all phrase symbols", "10 phrase symbols", "20 phrase symbols", "40 phrase symbols"]
    assert {"rank 10", "rank 15"} < set(table_of(tables, "table2").rows.values())
    assert "coarser grammar" in table_of(tables, "table1_novm").title


def test_the_seeds_of_a_probe_are_shown_with_their_deviation():
    several = [made(value, **{**AT_A_LAYER, "probe": "2-layer"}, model="A4L3", layer=1, seed=seed)
               for seed, value in enumerate((60.0, 62.0))]
    table = table_of(lay_out(Numbers([*SMALL.metrics, *several]), [], {}), "spread")
    head = 'row,"treebank text, sentence F1","treebank text, sentence F1 (±)"\n'
    assert to_csv(table) == head + '"2-layer, A4L3",61.00,1.414\n'


# ---- files and page --------------------------------------------------------------------------------------------------


def names(finished, ending):
    return {name.removesuffix(ending) for name in finished.files() if name.startswith("tables/") and
            name.endswith(ending)}


def test_the_report_says_under_every_table_which_stage_and_functions_its_numbers_come_from(finished):
    page = html.unescape(finished.text("report.html"))
    written = [name.removeprefix("tables/") for name in names(finished, ".csv")]
    assert "table4" in written
    by_id = {view.id: view for view in load_views()}
    for name in written:
        if (view := by_id.get(name.removesuffix("_novm"))) is None:
            continue  # a table of numbers that no view shows
        start = page.index(f'id="table-{name}"')
        after = page[page.index("</table>", start):][:1500]
        for table in view.tables & {"approximation", "parsing", "control"}:
            assert f"<code>{TABLES[table]}</code>" in after, name
        for step, function in view.functions.items():
            assert f"{step}: <code>{function}</code>" in after, name
