"""The transcription of the paper, and its claims on its own numbers."""

from collections import Counter

import pytest

from pcfg_artifact.errors import CorruptArtifact
from pcfg_artifact.judge.claims import HOLDS, evaluate
from pcfg_artifact.judge.paper import parse_paper
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.run.expected import load_claims, load_paper
from tests.judge.made_up import made_up_run


@pytest.fixture(scope="module")
def numbers():
    return Numbers(made_up_run())


def test_every_table_is_transcribed_in_full():
    counts = Counter(number.item for number in load_paper() if number.dims["table"] != "approximation_cost")
    # Table 4 prints Inside-Outside once for both probes
    assert {item: n for item, n in counts.items() if item.startswith("Table")} == {
        "Table 1": 12, "Table 2": 12, "Table 3": 12, "Table 4": 78, "Table 5": 60, "Table 6": 78, "Table 7": 36,
        "Table 8": 30}


def test_printed_selectivities_are_the_printed_differences():
    printed = {(n.item, *(n.dims.get(d) for d in ("table", "group", "probe", "layer", "width"))): n.value
               for n in load_paper() if n.item in ("Table 6", "Table 8")}
    compared = 0
    for (item, _, group, *where), value in printed.items():
        if group == "selectivity":
            task = printed[item, "parsing" if item == "Table 6" else "marginals", None, *where]
            # each of the three numbers is rounded on its own
            rounding = 0.0015 if item == "Table 6" else 0.015
            assert abs(task - printed[item, "control", "control", *where] - value) <= rounding
            compared += 1
    assert compared == 26 + 10


def test_slips_of_the_paper_are_shown_and_not_judged():
    slips = [number for number in load_paper() if "slip" in number.reason]
    assert {(n.item, n.dims["model"], n.dims.get("setting")) for n in slips if n.tolerance is None} \
        == {("Table 4", "IO", "ood")}
    assert {n.dims["table"] for n in slips} == {"parsing", "approximation_cost"}
    assert all(n.tolerance is not None for n in load_paper() if n not in slips)


def test_percentages_of_the_text_follow_from_the_tables(numbers):
    costs = [number for number in load_paper() if number.dims["table"] == "approximation_cost"]
    assert len(costs) == 6
    for number in costs:
        [metric] = numbers.select(number.dims)
        assert abs(metric.value - number.value) < 0.01, number


def test_the_papers_own_numbers_satisfy_every_claim(numbers):
    results = {(claim.id, grammar): evaluate(claim, numbers, grammar) for claim in load_claims() if claim.is_paper
               for grammar in claim.grammars}
    assert {name: found for name, found in results.items() if found.outcome != HOLDS} == {}
    assert all(found.n_compared > 0 for found in results.values())


def test_claims_are_counted_once_whatever_their_grammars():
    claims = load_claims()
    of_paper = [claim for claim in claims if claim.is_paper]
    assert (len(of_paper), len(claims) - len(of_paper)) == (60, 16)
    assert sum(len(claim.grammars) > 1 for claim in claims) == 15


def test_roles_of_the_papers_models(numbers):
    roles = numbers.roles
    assert (roles.base, roles.fewest_layers, roles.fewest_heads) == ("A12L12", "A12L1", "A3L12")
    assert roles.others == ("A12L3", "A12L6", "A12L12", "A24L12")


def test_rows_without_a_reason_or_that_are_repeated_are_refused():
    row = {"source": "Table 9", "table": "t", "metric": "m", "value": "1", "tolerance": "1", "reason": "why"}
    with pytest.raises(CorruptArtifact, match="occurs twice"):
        parse_paper([row, row], "t.csv")
    with pytest.raises(CorruptArtifact, match="no reason"):
        parse_paper([{**row, "reason": ""}], "t.csv")
    with pytest.raises(CorruptArtifact, match="no printed number"):
        parse_paper([{**row, "value": "about 3"}], "t.csv")
    with pytest.raises(CorruptArtifact, match="tolerance not negative"):
        parse_paper([{**row, "tolerance": "-1"}], "t.csv")
