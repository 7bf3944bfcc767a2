"""docs/RESULTS.md is what `record` would write from the committed records."""

import functools
from pathlib import Path

from pcfg_artifact.judge.claims import compare
from pcfg_artifact.judge.paper import as_numbers
from pcfg_artifact.judge.summary import ORDER
from pcfg_artifact.run.expected import load_claims, load_paper
from pcfg_artifact.tools.record import written_results

PAGE = Path(__file__).parents[2] / "docs" / "RESULTS.md"


@functools.cache
def page():
    return written_results()


def test_the_committed_page_is_of_the_committed_records():
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_claim_has_its_bound_and_the_papers_own_value_in_its_row():
    rows = {line.split("**")[1]: line.split(" | ") for line in page().splitlines() if line.startswith("| **")}
    claims, printed = load_claims(), as_numbers(load_paper())
    assert set(rows) == {claim.claim for claim in claims}
    n_printed = 0
    for claim in claims:
        theirs = compare(claim, printed, claim.grammars[0], partial=True).worst if claim.is_paper else None
        assert rows[claim.claim][1] == claim.limit
        assert rows[claim.claim][2] == ("" if theirs is None else f"{theirs.value:.3g}")
        n_printed += theirs is not None
    assert n_printed > 40


def test_the_page_opens_with_what_is_not_shown_and_has_every_table_of_the_paper():
    text = page()
    sections = [line for line in text.splitlines() if line.startswith("## ")]
    assert sections[0] == "## What is not shown"
    assert all(f"### Table {n}." in text for n in range(1, 9))
    assert text.index("not shown") < text.index("constructed transformers compute")  # what fails stands first


def test_the_ten_central_findings_have_a_verdict_in_every_profile_and_a_prediction():
    text = page()
    table = text[text.index("## The ten central findings"):].split("## ")[1]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 10
    for _, where, *verdicts, predicted in rows:
        assert where.startswith(("abstract: ", "conclusion: "))
        assert set(verdicts) <= set(ORDER)
        assert predicted.startswith(("holds: ", "fails: "))
