"""The judge: what passes, and everything that must not."""

import dataclasses
import math

import numpy as np
import pytest

from pcfg_artifact.artifacts import Metric
from pcfg_artifact.cells import Cell
from pcfg_artifact.errors import CorruptArtifact, StageError
from pcfg_artifact.roles import find_roles
from pcfg_artifact.verification.claim_outcomes import Comparison, evaluate
from pcfg_artifact.verification.comparison import Run, Verdict, judge, passed
from pcfg_artifact.verification.expectations import Outcome, Rerun, add_rerun, parse_paper, summarise
from pcfg_artifact.verification.expectations import add_seed as add_seed_with_stages
from pcfg_artifact.verification.families import family, in_words, part
from pcfg_artifact.verification.history import History
from pcfg_artifact.verification.measured import Value, tabulate
from pcfg_artifact.verification.spread import FLOOR, Spread, has_repeated, moved_exact_cells

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


def of_cells(by_seed, unit="percent", stage="probe"):
    """A record of a few hand-made cells."""
    found = None
    for seed, values in by_seed.items():
        measured = {cell: Value(number, unit) for cell, number in values.items()}
        found = add_seed_with_stages(found, "smoke", "trees", "settings", seed, measured,
                                     dict.fromkeys(measured, stage), "commit 0")
    return found


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


def test_a_drift_that_few_reruns_exaggerate_reaches_no_farther_than_another_seed():
    rng = np.random.default_rng(0)
    cells = [Cell("table4", f"linear {setting} sentence_f1", "A4L1") for setting in ("PCFG", "PTB", "OOD")]
    record = of_cells({seed: {cell: 60 + rng.normal() for cell in cells} for seed in range(7)})
    for name, shift in (("avx", 6.0), ("avx2", -6.0)):
        drifted = {cell: Value(record.by_seed[0][cell] + shift, "percent") for cell in cells}
        record = add_rerun(record, Rerun(0, name), "trees", "settings", drifted, "commit 0")
    spread = Spread(record)
    alone = spread.of_runs.cells.width(1e-3, 2)
    assert (alone > 20).all()
    assert max(limit.width for limit in spread.limits(0).values()) < 15


def test_at_another_seed_a_calm_layer_has_no_room_because_another_layer_needs_it():
    """A first layer that some seeds teach to parse and others do not; other arithmetic is too rare to tell layers."""
    rng = np.random.default_rng(0)
    calm, wild = ([Cell("figure_layers", f"A4L3 linear {setting} EOS {score}", layer) for setting in ("PCFG", "PTB")
                   for score in ("sentence_f1", "corpus_f1")] for layer in ("L3", "L1"))
    record = of_cells({seed: {cell: 60 + (8 if cell in wild else 1) * rng.normal() for cell in (*calm, *wild)}
                       for seed in range(7)})
    limits = Spread(record).limits(99)
    assert min(limits[cell].width for cell in wild) > 4 * max(limits[cell].width for cell in calm)


def test_a_trained_cell_may_drift_as_far_as_its_family_did_and_not_as_another_model():
    quiet, loud = (Cell("table4", "linear PTB sentence_f1", model) for model in ("A4L1", "A4L3"))
    record = of_cells({seed: {quiet: 60.0 + seed, loud: 70.0 + seed} for seed in range(3)})
    for name, shift in (("sse", 0.1), ("avx", -0.1), ("avx2", 0.1)):
        drifted = {quiet: Value(60.0 + shift / 10, "percent"), loud: Value(70.0 + shift, "percent")}
        record = add_rerun(record, Rerun(0, name), "trees", "settings", drifted, "commit 0")
    limits = Spread(record).limits(0)
    assert limits[loud].expected == 70.0
    assert limits[loud].width == pytest.approx(10 * limits[quiet].width, rel=0.2)
    assert 0.6 < limits[loud].width < 3.0
    assert Spread(record).limits(7)[loud].width > 5.0  # seeds lie a point apart


def test_a_mean_shifts_less_than_its_cells_scatter(paper):
    cells = [Cell("figure_layers", f"A4L3 {probe} {setting} EOS sentence_f1", f"L{layer}")
             for probe in ("linear", "2-layer") for setting in ("PCFG", "PTB", "OOD") for layer in range(4)]
    assert len({part(cell, "percent") for cell in cells}) == 1
    assert len({family(cell, "percent", "probe", "A4L3") for cell in cells}) == 2  # probes drift apart
    signs = [1 if n % 2 else -1 for n in range(len(cells))]
    record = of_cells({seed: {cell: 60.0 + sign * (seed - 1) for cell, sign in zip(cells, signs, strict=True)}
                       for seed in range(3)})
    run = Run("smoke", "trees", "settings", seed=7)
    mean = {cell: Value(60.0, "percent") for cell in cells}
    assert passed(judge(run, mean, paper, record, []))
    lower = {cell: Value(57.5, "percent") for cell in cells}
    judgements = judge(run, lower, paper, record, [])
    assert set(verdicts(judgements, "record").values()) == {Verdict.MATCH}  # each alone could be another seed
    [shift] = [j for j in judgements if j.against == "table"]
    assert (shift.verdict, shift.measured) == (Verdict.DIFFERS, "-2.50 points")


def test_limits_for_another_seed_are_as_wide_as_the_seed_farthest_from_the_others_asks_for():
    rng, cells = np.random.default_rng(0), [Cell("figure_layers", f"A4L6 linear {setting} EOS sentence_f1", f"L{layer}")
                                            for setting in ("PCFG", "PTB", "OOD") for layer in range(7)]
    by_seed = {seed: {cell: 50.0 + 0.3 * rng.normal() for cell in cells} for seed in range(4)}
    assert Spread(of_cells(by_seed)).shortfall == 1.0
    by_seed[0] |= {cell: 65.0 for cell in cells if cell.column == "L2"}  # a layer that parses at this seed alone
    record = of_cells(by_seed)
    before, spread = Spread(record.without_seed(0)), Spread(record)
    assert abs(65.0 - 50.0) > before.limits(None)[cells[2]].width
    assert spread.shortfall == pytest.approx(max(
        abs(record.by_seed[0][cell] - limit.expected) / limit.width for cell, limit in before.limits(None).items()))
    plain, limit = spread._limits(None, (), times=1.0)[cells[0]], spread.limits(None)[cells[0]]
    assert limit.width > plain.width
    assert limit.width == pytest.approx(spread.shortfall * plain.width, abs=FLOOR["percent"] * spread.shortfall)
    assert spread.limits(0) == spread._limits(0, (), times=1.0)  # a recorded seed has numbers of its own


def test_reruns_of_the_probes_say_nothing_of_a_claim_about_other_models():
    """A recorded seed whose training took another course may turn a claim as seeds do; the same models may not."""
    def at(value):
        return Comparison(value, 0.0, False, "", "", "")

    history = History({0: at(-1.8), 1: at(0.7), 2: at(1.1)}, {Rerun(0, "probes_avx2"): at(-1.799)})
    assert not history.is_honest(0, at(0.6), has_repeated=True)
    assert history.is_honest(0, at(0.6), has_repeated=False)
    whole = dataclasses.replace(history, reruns={**history.reruns, Rerun(0, "avx2"): at(-1.7999)})
    assert not whole.is_honest(0, at(0.6), has_repeated=False)


def test_a_run_has_the_recorded_models_if_every_curve_repeats():
    curves = [Cell("loss_curve", model, "step 5 validation") for model in ("A4L1", "A4L3")]
    record = of_cells({seed: dict.fromkeys(curves, 3.0 + seed) for seed in range(3)}, unit="nats", stage="pretrain")
    same = dict.fromkeys(curves, Value(3.0, "nats"))
    assert has_repeated(record, 0, same)
    assert not has_repeated(record, 0, replaced(same, curves[1], 3.001))
    assert not has_repeated(record, 7, same)
    assert not has_repeated(record, None, same)


def test_two_seeds_cannot_check_each_other():
    cell = Cell("table4", "linear PTB sentence_f1", "A4L1")
    assert Spread(of_cells({0: {cell: 60.0}, 1: {cell: 70.0}})).shortfall == 1.0


def test_a_number_without_training_is_compared_to_rounding_and_its_drift_is_reported():
    cell = Cell("marginals", "IO", "PTB sentence_f1")
    record = of_cells({seed: {cell: 90.0 + seed} for seed in range(3)}, stage="marginals")
    moved = add_rerun(record, Rerun(0, "sse"), "trees", "settings", {cell: Value(90.3, "percent")}, "commit 0")
    assert Spread(moved).limits(0)[cell].width < 2 * FLOOR["percent"]
    assert moved_exact_cells(moved, Rerun(0, "sse")) == [(cell, 90.0, 90.3)]


def test_a_number_that_all_seeds_agree_on_has_no_spread_whatever_its_family_does():
    settled, loud = Cell("table4", "linear PTB sentence_f1", "IO"), Cell("table4", "linear PCFG sentence_f1", "IO")
    limits = Spread(of_cells({s: {settled: 95.86, loud: 50.0 + s % 2} for s in range(4)})).limits(7)
    assert limits[settled].width < 2 * FLOOR["percent"]
    assert limits[loud].width > 3


def test_a_number_whose_seeds_scatter_as_far_as_a_trivial_answer_is_not_judged(make_rows, measure, paper):
    found = None
    for seed in range(3):
        measured = replaced(measure(make_rows(seed)), F1, 20.0 + 25.0 * seed)
        found = add_seed(found, "smoke", "trees", "settings", seed, measured, "commit 0")
    assert verdicts(judge(SMOKE, measured, paper, found, []), "record")[str(F1)] == Verdict.NOT_JUDGED
    undefined = judge(SMOKE, replaced(measured, F1, math.nan), paper, found, [])
    assert verdicts(undefined, "record")[str(F1)] == Verdict.DIFFERS


def test_counts_that_never_vary_are_exact():
    cell = Cell("grammar", "interminals", "vm")
    limits = Spread(of_cells({s: {cell: 71.0} for s in range(3)}, unit="count", stage="grammar")).limits(7)
    assert limits[cell].width == 0.0


def test_drift_is_measured_against_a_recorded_seed():
    cell = Cell("grammar", "interminals", "vm")
    record = of_cells({0: {cell: 71.0}})
    with pytest.raises(StageError, match="seed 5 is not recorded"):
        add_rerun(record, Rerun(5, "sse"), "trees", "settings", {cell: Value(71.0, "count")}, "commit 0")


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


@pytest.mark.parametrize(("factor", "said"), [(1.014, "+1.4%"), (2.3, "+130%"), (6.57, "+557%"), (0.5, "-50%"),
                                              (30, "more than 10 times"), (0.01, "less than 1 in 10")])
def test_shifts_of_perplexities_are_said_as_a_reader_thinks_of_them(factor, said):
    assert in_words(math.log(factor), "perplexity") == said
