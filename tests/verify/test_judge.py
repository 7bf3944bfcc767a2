"""The judge: what passes, and everything that must not."""

import dataclasses
import math

import pytest

from pcfg_artifact.artifacts import Metric
from pcfg_artifact.cells import Cell
from pcfg_artifact.errors import CorruptArtifact, StageError
from pcfg_artifact.roles import find_roles
from pcfg_artifact.verification.claim_outcomes import evaluate
from pcfg_artifact.verification.comparison import Run, Verdict, judge, passed
from pcfg_artifact.verification.expectations import Outcome, parse_paper, summarise
from pcfg_artifact.verification.expectations import add_seed as add_seed_with_stages
from pcfg_artifact.verification.measured import Value, tabulate

PAPER = Run("paper", "trees", "settings")
SMOKE = Run("smoke", "trees", "settings", seed=7)  # not recorded
F1 = Cell("table4", "linear PTB sentence_f1", "A12L12")


STAGES = {"table1": "approximate", "table2": "approximate", "sizes": "construct", "grammar": "grammar",
          "treebank": "grammar", "marginals": "marginals", "agreement": "construct", "t": "marginals"}


def add_seed(record, profile, treebank, config, seed, measured, note):
    stages = {cell: STAGES.get(cell.table, "probe") for cell in measured}
    return add_seed_with_stages(record, profile, treebank, config, seed, measured, stages, note)


@pytest.fixture
def record(make_rows, measure, relations):
    """Three recorded seeds of the smoke profile; every claim held."""
    found, by_seed = None, {}
    for seed in range(3):
        by_seed[seed] = measure(make_rows(seed, noise=0.2))
        found = add_seed(found, "smoke", "trees", "settings", seed, by_seed[seed], "commit 0")
    outcomes = {r.id: summarise(r.id, dict.fromkeys(map(str, by_seed), True), "", "") for r in relations}
    return dataclasses.replace(found, outcomes=outcomes)


def verdicts(judgements, against):
    return {j.name: j.verdict for j in judgements if j.against == against}


def replaced(measured, cell, number):
    return {**measured, cell: Value(number, measured[cell].unit)}


def test_the_papers_own_numbers_pass_at_paper_scale(rows, measure, paper, relations):
    judgements = judge(PAPER, measure(rows), paper, None, relations)
    assert passed(judgements)
    numbers = verdicts(judgements, "paper")
    assert sum(v == Verdict.MATCH for v in numbers.values()) == len(paper) - 4  # the four slips
    assert all(v == Verdict.MATCH for v in verdicts(judgements, "relation").values())


def test_a_planted_wrong_number_fails(rows, measure, paper, relations):
    measured = replaced(measure(rows), F1, 63.0)
    judgements = judge(PAPER, measured, paper, None, relations)
    assert verdicts(judgements, "paper")[str(F1)] == Verdict.DIFFERS
    assert not passed(judgements)


def test_a_nan_fails(rows, measure, paper, relations):
    judgements = judge(PAPER, replaced(measure(rows), F1, math.nan), paper, None, relations)
    assert verdicts(judgements, "paper")[str(F1)] == Verdict.DIFFERS
    assert verdicts(judgements, "relation")["small-models-worst-parsing"] == Verdict.DIFFERS
    assert not passed(judgements)


def test_a_missing_table_fails(rows, measure, paper, relations):
    measured = measure([row for row in rows if row.table != "table8"])
    judgements = judge(PAPER, measured, paper, None, relations)
    assert verdicts(judgements, "paper")["table8 / linear control / l=2"] == Verdict.NOT_MEASURED
    assert verdicts(judgements, "relation")["selectivity-marginals"] == Verdict.NOT_MEASURED
    assert not passed(judgements)


def test_nothing_measured_is_not_a_pass(paper, relations):
    assert not passed(judge(PAPER, {}, paper, None, relations))
    assert not passed(judge(SMOKE, {}, paper, None, []))


def test_another_treebank_at_paper_scale_is_not_judged_against_the_paper(rows, measure, paper, relations):
    measured = replaced(measure(rows), Cell("treebank", "train", "trees"), 29_000)
    judgements = judge(PAPER, measured, paper, None, relations)
    assert set(verdicts(judgements, "paper").values()) == {Verdict.NOT_APPLICABLE}
    assert all("29000" in j.reason for j in judgements if j.against == "paper")


# ---- against a record -----------------------------------------------------------------------------------------------


def test_a_recorded_profile_passes_on_a_new_seed(record, make_rows, measure, paper, relations):
    judgements = judge(SMOKE, measure(make_rows(7, noise=0.2)), paper, record, relations)
    assert passed(judgements)
    numbers = list(verdicts(judgements, "record").values())
    assert set(numbers) <= {Verdict.MATCH, Verdict.NOT_JUDGED}  # three seeds know some spreads badly
    assert numbers.count(Verdict.MATCH) > 0.8 * len(numbers)
    assert set(verdicts(judgements, "paper").values()) == {Verdict.NOT_APPLICABLE}
    scale = verdicts(judgements, "relation")
    assert scale["layer-0-low"] == Verdict.NOT_APPLICABLE
    assert scale["best-layer-beats-layer-0"] == Verdict.MATCH


def test_wrong_missing_nan_and_extra_cells_each_fail(record, rows, measure, paper, relations):
    measured = measure(rows)
    extra = Cell("table4", "linear PTB sentence_f1", "A1L1")
    cases = {
        Verdict.DIFFERS: (F1, replaced(measured, F1, 80.0)),
        Verdict.NOT_MEASURED: (F1, {c: v for c, v in measured.items() if c != F1}),
        Verdict.NOT_EXPECTED: (extra, {**measured, extra: Value(50.0, "percent")}),
    }
    for verdict, (cell, changed) in cases.items():
        judgements = judge(SMOKE, changed, paper, record, relations)
        assert verdicts(judgements, "record")[str(cell)] == verdict
        assert not passed(judgements)
    judgements = judge(SMOKE, replaced(measured, F1, math.nan), paper, record, relations)
    assert verdicts(judgements, "record")[str(F1)] == Verdict.DIFFERS


def test_a_cell_that_was_always_undefined_is_known_and_is_not_a_match(make_rows, measure, relations, paper):
    found = None
    for seed in range(3):
        measured = replaced(measure(make_rows(seed)), F1, math.nan)
        found = add_seed(found, "smoke", "trees", "settings", seed, measured, "commit 0")
    again = judge(SMOKE, measured, paper, found, [])
    assert verdicts(again, "record")[str(F1)] == Verdict.AS_RECORDED
    defined = judge(SMOKE, measure(make_rows(0)), paper, found, [])
    assert verdicts(defined, "record")[str(F1)] == Verdict.DIFFERS


def test_a_cell_that_is_undefined_for_some_seeds_may_be_either(make_rows, measure, relations, paper):
    found = None
    for seed in range(3):
        measured = measure(make_rows(seed))
        measured = replaced(measured, F1, math.nan) if seed == 1 else measured
        found = add_seed(found, "smoke", "trees", "settings", seed, measured, "commit 0")
    cases = {Verdict.MATCH: measured[F1].number, Verdict.AS_RECORDED: math.nan, Verdict.DIFFERS: 0.0}
    for verdict, number in cases.items():
        judgements = judge(SMOKE, replaced(measured, F1, number), paper, found, [])
        assert verdicts(judgements, "record")[str(F1)] == verdict


def test_a_recorded_infinity_matches_itself(make_rows, measure, paper):
    found = None
    for seed in range(3):
        measured = replaced(measure(make_rows(seed)), F1, math.inf)
        found = add_seed(found, "smoke", "trees", "settings", seed, measured, "commit 0")
    assert verdicts(judge(SMOKE, measured, paper, found, []), "record")[str(F1)] == Verdict.MATCH
    finite = judge(SMOKE, replaced(measured, F1, 80.0), paper, found, [])
    assert verdicts(finite, "record")[str(F1)] == Verdict.DIFFERS


@pytest.mark.parametrize("change", ["treebank", "config"])
def test_another_record_does_not_apply_but_claims_are_judged(record, rows, measure, paper, relations, change):
    other = dataclasses.replace(SMOKE, **{change: "other"})
    judgements = judge(other, replaced(measure(rows), F1, 20.0), paper, record, relations)
    assert set(verdicts(judgements, "record").values()) == {Verdict.NOT_APPLICABLE}
    assert verdicts(judgements, "relation")["small-models-worst-parsing"] == Verdict.DIFFERS
    assert not passed(judgements)


def test_one_seed_is_no_record(make_rows, measure, paper, relations):
    found = add_seed(None, "smoke", "trees", "settings", 0, measure(make_rows(0)), "commit 0")
    judgements = judge(SMOKE, measure(make_rows(0)), paper, found, relations)
    assert set(verdicts(judgements, "record").values()) == {Verdict.NOT_APPLICABLE}


def turned(rows, is_turned=True):
    """Attention on treebank text turned round: the claim attention-alike fails, far from its bound."""
    return [dataclasses.replace(r, value=10 - r.value) if is_turned and " PTB L" in r.row
            and r.table == "figure_attention" else r for r in rows]


@pytest.mark.parametrize(("recorded", "holds", "verdict"), [
    ((True, True, True), True, Verdict.MATCH),
    ((True, True, True), False, Verdict.DIFFERS),
    ((False, False, False), False, Verdict.AS_RECORDED),
    ((False, False, False), True, Verdict.DIFFERS),  # an unexplained success is a change too
    ((True, False, True), True, Verdict.VARIES),
    ((True, False, True), False, Verdict.VARIES),
])
def test_a_claim_is_judged_by_its_record(make_rows, measure, paper, relations, recorded, holds, verdict):
    relation = next(r for r in relations if r.id == "attention-alike")
    found = None
    for seed, held in enumerate(recorded):
        found = add_seed(found, "smoke", "trees", "settings", seed, measure(turned(make_rows(seed), not held)), "")
    outcomes = {relation.id: Outcome(relation.id, "", "", "", "too few heads")}
    found = dataclasses.replace(found, outcomes=outcomes)
    measured = measure(turned(make_rows(0), not holds))
    assert evaluate(relation, tabulate(measured), find_roles(measured)).outcome == ("holds" if holds else "fails")
    [judgement] = [j for j in judge(SMOKE, measured, paper, found, [relation]) if j.name == relation.id]
    assert judgement.verdict == verdict
    if verdict == Verdict.AS_RECORDED:
        assert "too few heads" in judgement.reason


def test_a_claim_at_its_bound_may_turn_by_as_much_as_honest_runs_lie_apart(rows, measure, paper, relations):
    relation = dataclasses.replace(next(r for r in relations if r.id == "right-branching-under-forty"), number=37.8)
    cell = Cell("marginals", "right", "PTB sentence_f1_KIM")
    found = None
    for seed, number in enumerate((37.5, 37.7, 37.6)):
        found = add_seed(found, "smoke", "trees", "settings", seed, replaced(measure(rows), cell, number), "")
    for number, verdict in ((37.9, Verdict.VARIES), (45.0, Verdict.DIFFERS)):
        [judgement] = judge(SMOKE, replaced(measure(rows), cell, number), paper, found, [relation])[:1]
        assert judgement.verdict == verdict


def test_a_recorded_claim_that_left_the_file_fails(record, rows, measure, paper, relations):
    judgements = judge(SMOKE, measure(rows), paper, record, relations[1:])
    assert verdicts(judgements, "relation")[relations[0].id] == Verdict.NOT_MEASURED
    assert not passed(judgements)


@pytest.mark.parametrize(("recorded", "now", "verdict"), [
    (69.0, 69.0, Verdict.MATCH), (69.0, 55.0, Verdict.DIFFERS), (55.0, 55.0, Verdict.AS_RECORDED),
    (55.0, 69.0, Verdict.DIFFERS)])
def test_a_number_of_the_paper_is_judged_by_its_record_where_there_is_one(rows, measure, paper, recorded, now, verdict):
    found = None
    for seed in range(3):
        measured = replaced(measure(rows), F1, recorded)
        found = add_seed(found, "paper", "trees", "settings", seed, measured, "commit 0")
    judgements = judge(PAPER, replaced(measured, F1, now), paper, found, [])
    assert verdicts(judgements, "paper")[str(F1)] == verdict


# ---- recording ------------------------------------------------------------------------------------------------------


def test_a_recorded_seed_is_compared_with_its_own_number(make_rows, measure, paper):
    found = None
    for seed in range(3):
        measured = replaced(measure(make_rows(seed)), Cell("table1", "exact", "perplexity"), 50.0 + seed)
        found = add_seed(found, "smoke", "trees", "settings", seed, measured, "commit 0")
    name = "table1 / exact / perplexity"
    own = dataclasses.replace(SMOKE, seed=2)
    assert verdicts(judge(own, measured, paper, found, []), "record")[name] == Verdict.MATCH
    other = replaced(measured, Cell("table1", "exact", "perplexity"), 51.0)  # that of seed 1
    assert verdicts(judge(own, other, paper, found, []), "record")[name] == Verdict.DIFFERS
    assert verdicts(judge(SMOKE, other, paper, found, []), "record")[name] == Verdict.MATCH  # some other seed


def test_a_number_whose_seeds_scatter_as_far_as_a_trivial_answer_is_not_judged(make_rows, measure, paper):
    found = None
    for seed in range(3):
        measured = replaced(measure(make_rows(seed)), F1, 20.0 + 25.0 * seed)
        found = add_seed(found, "smoke", "trees", "settings", seed, measured, "commit 0")
    assert verdicts(judge(SMOKE, measured, paper, found, []), "record")[str(F1)] == Verdict.NOT_JUDGED
    undefined = judge(SMOKE, replaced(measured, F1, math.nan), paper, found, [])
    assert verdicts(undefined, "record")[str(F1)] == Verdict.DIFFERS


def test_a_number_that_some_recorded_seeds_lack_may_be_absent_but_not_wrong(make_rows, measure, paper):
    found = None
    for seed in range(3):
        measured = measure(make_rows(seed, noise=0.1))
        if seed == 1:
            del measured[F1]
        found = add_seed(found, "smoke", "trees", "settings", seed, measured, "commit 0")
    for cells, verdict in ((replaced(measured, F1, 80.0), Verdict.DIFFERS), (measured, Verdict.MATCH),
                           ({c: v for c, v in measured.items() if c != F1}, Verdict.NOT_APPLICABLE)):
        assert verdicts(judge(SMOKE, cells, paper, found, []), "record")[str(F1)] == verdict


@pytest.mark.parametrize(("treebank", "config", "words"), [
    ("others", "settings", "of another treebank"), ("trees", "others", "of another configuration")])
def test_seeds_of_other_data_or_settings_are_not_mixed(make_rows, measure, treebank, config, words):
    first = add_seed(None, "smoke", "trees", "settings", 0, measure(make_rows(0)), "commit 0")
    with pytest.raises(StageError, match=words):
        add_seed(first, "smoke", treebank, config, 1, measure(make_rows(1)), "commit 0")


def test_a_claim_that_fails_for_one_seed_does_not_count_as_holding():
    assert summarise("x", {"0": True, "1": True, "0/sse": False}, "", "").outcome == "mixed"
    assert summarise("x", {"0": False, "1": False}, "", "").outcome == "fails"
    assert summarise("x", {"0": True, "0/sse": True}, "", "").by_seed == "0:holds 0/sse:holds"


def test_paper_rows_without_reason_or_with_a_repeated_cell_are_refused():
    row = {"table": "t", "row": "r", "column": "c", "value": "1", "tolerance": "1", "reason": "why", "source": "here"}
    with pytest.raises(CorruptArtifact, match="occurs twice"):
        parse_paper([row, row], "t.csv")
    with pytest.raises(CorruptArtifact, match="no reason"):
        parse_paper([{**row, "reason": ""}], "t.csv")
    with pytest.raises(CorruptArtifact, match="is not an expectation"):
        parse_paper([{**row, "value": "about 3"}], "t.csv")


def test_seeds_of_one_run_are_averaged_and_nan_stays_nan(measure):
    rows = [Metric("t", "r", "c", 0, 1.0, 5, "percent"), Metric("t", "r", "c", 1, 2.0, 5, "percent"),
            Metric("t", "r", "d", 0, math.nan, 5, "percent"), Metric("t", "r", "d", 1, 2.0, 5, "percent")]
    measured = measure(rows)
    assert measured[Cell("t", "r", "c")].number == 1.5
    assert math.isnan(measured[Cell("t", "r", "d")].number)
