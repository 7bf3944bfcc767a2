"""The transcription of the paper, and its claims on its own numbers."""

import math
import re
from collections import Counter

import pytest

from pcfg_artifact.errors import CorruptArtifact
from pcfg_artifact.judge.claims import HOLDS, MISSING, UPPER, compare, evaluate
from pcfg_artifact.judge.paper import as_numbers, parse_paper
from pcfg_artifact.metrics.selection import CONTROLS, Numbers
from pcfg_artifact.run.expected import load_claims, load_paper, load_record
from tests.judge.made_up import made_up_run


@pytest.fixture(scope="module")
def numbers():
    return Numbers(made_up_run())


def test_every_table_is_transcribed_in_full():
    counts = Counter(number.item for number in load_paper()
                     if number.dims["table"] != "approximation_cost" and not number.bound)
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
            task = printed[item, *(("parsing", "n-ary") if item == "Table 6" else ("marginals", None)), *where]
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
    assert all(n.tolerance is not None for n in load_paper() if n not in slips and not n.bound)


def test_percentages_of_the_text_follow_from_the_tables(numbers):
    costs = [number for number in load_paper() if number.dims["table"] == "approximation_cost"]
    assert len(costs) == 6
    for number in costs:
        [metric] = numbers.select(number.dims)
        assert abs(metric.value - number.value) < 0.01, number


def in_favour(value, kind):
    """Two digits of which the second is 0 or 5, rounded in the paper's favour: the one rule for printed strengths."""
    unit = 5 * 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    steps = round(value / unit, 6)  # so that 9.5 stays 9.5
    return unit * (math.ceil(steps) if kind in UPPER else math.floor(steps))


PRINTED = as_numbers(load_paper())


@pytest.mark.parametrize(("claim", "grammar"), [(claim, grammar) for claim in load_claims() if claim.is_paper
                                                for grammar in claim.grammars], ids=lambda one: getattr(one, "id", one))
def test_the_papers_printed_numbers_have_every_relation_whose_cells_it_prints(claim, grammar):
    found = compare(claim, PRINTED, grammar, partial=True)
    assert found.outcome in (HOLDS, MISSING), found
    if claim.basis == "printed":
        assert claim.number == pytest.approx(in_favour(found.worst.value, claim.kind)), found.worst
    if claim.basis == "order":
        assert abs(claim.number) < 1e-9
    if claim.basis == "reading":
        assert found.outcome == MISSING  # where a cell is printed, it gives the number


def test_the_paper_prints_the_cells_of_most_findings():
    findings = [claim for claim in load_claims() if claim.is_paper and not claim.is_check]
    unprinted = {claim.id for claim in findings
                 if compare(claim, PRINTED, claim.grammars[0], partial=True).outcome == MISSING}
    assert unprinted == {
        # proofs, which print sizes and no error
        "constructions-exact", "approximate-constructions-exact", "low-rank-construction-end-to-end",
        "constructions-heads-layers", "constructions-dimensions",
        # words: the performance drops
        "shared-transformation-worse", "all-interminals-transformation-worse", "separate-transformations-worse",
        "all-leaves-needed",
        # figures, and layers between the first and the best
        "saturates-early", "adjacent-above-eos", "marginals-need-context", "marginal-probes-alike-at-layer-0",
        "marginals-ood", "sensitivity-agrees-parsing", "sensitivity-agrees-marginals", "attention-grows",
        "attention-alike", "attention-near", "attention-far"}


def test_a_made_up_run_with_the_papers_numbers_has_every_relation(numbers):
    results = {(claim.id, grammar): compare(claim, numbers, grammar) for claim in load_claims() if claim.is_paper
               for grammar in claim.grammars}
    assert {name: found for name, found in results.items() if found.outcome != HOLDS} == {}


def test_claims_are_counted_once_whatever_their_grammars_and_findings_apart_from_checks():
    claims = load_claims()
    groups = Counter(claim.group for claim in claims)
    assert groups == {"findings of the paper": 62, "findings of this project": 13, "sanity checks": 14}
    assert {claim.group for claim in claims if claim.central} == {"findings of the paper"}
    assert sum(bool(claim.central) for claim in claims) == 10
    assert all(claim.central.startswith(("abstract: ", "conclusion: ")) for claim in claims if claim.central)
    assert {"approximation-costs", "low-rank-perplexity"} <= {claim.id for claim in claims if claim.central}
    assert all(claim.scale == "any" for claim in claims if claim.central)


def test_every_printed_number_has_a_prediction_and_the_figures_it_rests_on():
    numbers = [number for number in load_paper() if not number.bound]
    assert len(numbers) == 343
    assert all(number.prediction and len(number.basis) > 10 for number in numbers)
    assert all(re.search(r"\d|by construction|the same", number.basis) for number in numbers)


@pytest.mark.parametrize("profile", ["smoke", "reduced"])
@pytest.mark.parametrize("control", CONTROLS)
def test_stored_numbers_of_controls_show_no_finding_about_trained_models(profile, control):
    record = load_record(profile)
    for seed in record.seeds:
        numbers = Numbers(record.metrics(seed)).controls.get(control)
        if numbers is None:
            pytest.skip(f"{profile} has no {control} model on record")
        # Every control is a control of itself: what it holds for, it also holds for without training.
        itself = Numbers([m for m in numbers.metrics if m.table not in ("perplexity", "next_words")], numbers.roles)
        found = {claim.id: evaluate(claim, itself, grammar).outcome for claim in load_claims()
                 if claim.roles and not claim.is_check for grammar in claim.grammars}
        assert {id_ for id_, outcome in found.items() if outcome == HOLDS} == set()
        assert "fails" in found.values()


def test_roles_of_the_papers_models(numbers):
    roles = numbers.roles
    assert (roles.base, roles.fewest_layers, roles.fewest_heads) == ("A12L12", "A12L1", "A3L12")
    assert roles.others == ("A12L3", "A12L6", "A12L12", "A24L12")


def test_rows_without_a_reason_or_that_are_repeated_are_refused():
    row = {"source": "Table 9", "table": "t", "metric": "m", "value": "1", "tolerance": "1", "reason": "why",
           "prediction": "match", "basis": "as by hand: 1"}
    with pytest.raises(CorruptArtifact, match="occurs twice"):
        parse_paper([row, row], "t.csv")
    with pytest.raises(CorruptArtifact, match="no reason"):
        parse_paper([{**row, "reason": ""}], "t.csv")
    with pytest.raises(CorruptArtifact, match="no printed number"):
        parse_paper([{**row, "value": "about 3"}], "t.csv")
    with pytest.raises(CorruptArtifact, match="has the prediction ''; expected match"):
        parse_paper([{**row, "prediction": "", "basis": ""}], "t.csv")
    with pytest.raises(CorruptArtifact, match="tolerance not negative"):
        parse_paper([{**row, "tolerance": "-1"}], "t.csv")
