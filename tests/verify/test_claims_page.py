"""The tables of docs/CLAIMS.md; that the page holds them is tested beside the other quoted figures."""

from pcfg_artifact.verification.claims_page import claims_table, fill


def test_every_claim_has_one_line_with_its_place_and_strength(relations):
    lines = claims_table(relations).splitlines()[2:]
    assert len(lines) == len(relations)
    assert all(line.count(" | ") == 4 for line in lines)


def test_a_page_without_its_marks_is_left_alone():
    assert fill("no marks here", "claims", "table") == "no marks here"
