"""The transcription of the paper, and its claims on its own numbers."""

import re

from pcfg_artifact.cells import Cell
from pcfg_artifact.roles import find_roles
from pcfg_artifact.verification.claim_outcomes import HOLDS, evaluate
from pcfg_artifact.verification.measured import tabulate


def test_every_table_is_transcribed_in_full(paper):
    counts = {table: sum(cell.table == table for cell in paper) for table in (f"table{n}" for n in range(1, 9))}
    assert counts == {"table1": 12, "table2": 12, "table3": 12, "table4": 84, "table5": 60, "table6": 78, "table7": 36,
                      "table8": 30}


def test_printed_selectivities_are_the_printed_differences(paper):
    for table, task in (("table6", "relative_depth"), ("table8", "marginal")):
        for cell, expected in paper.items():
            if cell.table == table and cell.row.endswith("selectivity"):
                probe = cell.row.split()[0]
                difference = (paper[Cell(table, f"{probe} {task}", cell.column)].value
                              - paper[Cell(table, f"{probe} control", cell.column)].value)
                # each of the three numbers is rounded on its own
                assert abs(difference - expected.value) <= (0.0015 if table == "table6" else 0.015), cell


def test_slips_of_the_paper_are_shown_and_not_judged(paper):
    unjudged = {cell for cell, expected in paper.items() if expected.tolerance is None}
    assert unjudged == {Cell("table4", f"{probe} OOD {metric}", "IO") for probe in ("linear", "2-layer")
                        for metric in ("sentence_f1", "corpus_f1")}
    slips = [e for e in paper.values() if re.search("slip", e.reason)]
    assert {e.cell.table for e in slips} == {"table4", "percentages"}


def test_percentages_of_the_text_follow_from_the_tables(paper, measure, rows):
    measured = measure(rows)
    for cell, expected in paper.items():
        if cell.table == "percentages":
            assert abs(measured[cell].number - expected.value) < 0.01, cell


def test_the_papers_own_numbers_satisfy_every_claim(relations, measure, rows):
    measured = measure(rows)
    roles, tables = find_roles(measured), tabulate(measured)
    results = {relation.id: evaluate(relation, tables, roles) for relation in relations if relation.is_paper}
    assert len(results) > 50  # claims of this project alone are left out: the paper has no number for them
    assert {id_: result for id_, result in results.items() if result.outcome != HOLDS} == {}
    assert all(result.n_compared > 0 for result in results.values())


def test_roles_of_the_papers_models(measure, rows):
    roles = find_roles(measure(rows))
    assert (roles.base, roles.fewest_layers, roles.fewest_heads) == ("A12L12", "A12L1", "A3L12")
    assert roles.others == ("A12L3", "A12L6", "A12L12", "A24L12")
