"""docs/RESULTS.md is what `record` would write from the committed records."""

import functools
from pathlib import Path

from pcfg_artifact.judge.results_page import results_page
from pcfg_artifact.run.expected import load_claims, load_paper, load_record
from pcfg_artifact.tools.record import PROFILES

PAGE = Path(__file__).parents[2] / "docs" / "RESULTS.md"


@functools.cache
def page():
    records = [found for name in PROFILES if (found := load_record(name)) is not None]
    return results_page(records, load_paper(), load_claims())


def test_the_committed_page_is_of_the_committed_records():
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_claim_and_every_table_of_the_paper_is_on_the_page():
    text = page()
    assert all(f"**{claim.claim}**" in text for claim in load_claims())
    assert all(f"### Table {n}." in text for n in range(1, 9))
    assert text.index("not shown") < text.index("constructed transformers compute")  # what fails stands first
