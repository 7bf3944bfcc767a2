"""Tables say where their numbers come from, and are written for programs (CSV) and for readers (Markdown)."""

import csv
import html

from pcfg_artifact.cells import Cell
from pcfg_artifact.owners import OWNERS
from pcfg_artifact.roles import roles_of
from pcfg_artifact.verification.measured import Value
from pcfg_artifact.verification.tables import lay_out, to_csv, to_markdown

MEASURED = {Cell("table4", "linear PTB sentence_f1", "A4L3"): Value(61.234, "percent"),
            Cell("table4", "linear PTB sentence_f1", "IO"): Value(90.0, "percent"),
            Cell("best_layer", "A4L3 linear PTB", "layer"): Value(2.0, "count")}


def names(finished, ending):
    return {name.removesuffix(ending) for name in finished.files() if name.startswith("tables/") and
            name.endswith(ending)}


def test_the_report_says_under_every_table_which_stage_and_function_its_numbers_come_from(finished):
    page = html.unescape(finished.text("report.html"))
    tables = [name.removeprefix("tables/") for name in names(finished, ".csv")]
    assert "table4" in tables
    for table in tables:
        for stage, function in OWNERS[table].computed_by.items():
            head = page.index(OWNERS[table].title)
            line = f"Stage <code>{stage}</code>, computed by <code>{function}</code>"
            assert line in page[head:head + 400], table


def test_every_table_is_written_as_csv_and_as_markdown_with_the_same_rows(finished):
    assert names(finished, ".csv") == names(finished, ".md")
    for name in names(finished, ".csv"):
        rows = [row["row"] for row in csv.DictReader(finished.text(f"{name}.csv").splitlines())]
        lines = [line for line in finished.text(f"{name}.md").splitlines() if line.startswith("|")]
        assert [line.split("|")[1].strip() for line in lines[2:]] == rows


def test_table_4_says_which_layer_its_best_cells_come_from():
    table = next(table for table in lay_out(MEASURED, {}, [], roles_of(["A4L3"])) if table.name == "table4")
    assert table.note == "Best layers: linear PTB: A4L3 L2."
    assert table.note in to_markdown(table)
    assert to_csv(table) == ("row,A4L3,A4L3 (paper),A4L3 (difference),IO,IO (paper),IO (difference)\n"
                             "linear PTB sentence_f1,61.23,,,90.00,,\n")
    assert "| linear PTB sentence_f1 | 61.23  | 90.00 |" in to_markdown(table)
