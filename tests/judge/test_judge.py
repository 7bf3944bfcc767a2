"""The judge: what agrees with the record, and everything that must not."""

import dataclasses
import math

import pytest

from pcfg_artifact.errors import StageError
from pcfg_artifact.judge import summary
from pcfg_artifact.judge.judge import ROUNDING, Run, Verdict, judge
from pcfg_artifact.judge.recorded_runs import (
    Record,
    add_seed,
    claims_csv,
    judge_claims,
    numbers_csv,
    parse_record,
    refuse_other,
)
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.run.expected import load_claims, load_paper
from tests.judge.made_up import BASE, UNTRAINED_TOO, WITHOUT_CONTROL, as_predicted, made_up_run

PAPER = Run("paper", "trees", "settings")
OTHER_SEED = Run("smoke", "trees", "settings", seed=7)
FIRST_SEED = Run("smoke", "trees", "settings", seed=0)
CLAIMS = load_claims()
PROBE_F1 = {"table": "parsing", "model": BASE, "layer": 12, "probe": "linear", "setting": "treebank", "input": "EOS",
            "metric": "sentence_f1"}
EXACT_F1 = {"table": "approximation", "model": "exact", "grammar": "vm", "metric": "sentence_f1"}


@pytest.fixture(scope="module")
def record():
    """Five recorded seeds."""
    return judge_claims(recorded(range(5)), CLAIMS)


def recorded(seeds, noise=0.2, profile="smoke"):
    found = Record(profile, "trees", "settings", {}, {})
    for seed in seeds:
        found = add_seed(found, seed, Numbers(made_up_run(seed, noise)), f"commit {seed}")
    return found


def changed(metrics, dims, value=None, add=0.0):
    """The numbers with those of these dimensions changed."""
    found = [m.at(value=m.value + add if value is None else value)
             if all(getattr(m, name) == wanted for name, wanted in dims.items()) else m for m in metrics]
    assert found != metrics
    return found


def verdict_on(metrics, run=FIRST_SEED, record=None, paper=(), claims=()):
    return judge(run, Numbers(metrics), paper, record, claims)


def verdicts_of(found, dims):
    return {j.verdict for j in found.judgements for key in j.keys
            if all(wanted in key for wanted in dims.values())}


# ---- the paper's numbers ---------------------------------------------------------------------------------------------


def test_numbers_as_predicted_agree_at_paper_scale():
    paper = load_paper()
    found = verdict_on(as_predicted(made_up_run()), PAPER, paper=paper, claims=CLAIMS)
    assert found.agrees
    judged = [j for j in found.judgements if j.against == "paper"]
    assert len(judged) == sum(number.tolerance is not None for number in paper)
    assert {j.verdict for j in judged} == {Verdict.AGREES}


def test_numbers_that_match_where_a_difference_was_predicted_are_a_surprise():
    paper = load_paper()
    found = verdict_on(made_up_run(), PAPER, paper=paper, claims=CLAIMS)
    differing = {j.name for j in found.judgements if j.against == "paper" and j.verdict == Verdict.DIFFERS}
    assert differing == {one.name for one in paper if one.prediction != "match" and one.tolerance is not None}
    assert any("match, predicted above (the exact optimum of words under 40% masks" in j.reason for j in found.outside)
    assert {one.claim.id for one in found.claims if not one.agrees} == {"approximation-costs", "low-rank-perplexity"}


@pytest.mark.parametrize("value", [0.3, math.nan])
def test_a_planted_wrong_number_and_one_that_is_none_disagree_with_the_paper(value):
    dims = {"table": "marginals", "model": "A12L6", "layer": 6, "probe": "2-layer", "setting": "treebank", "width": 4,
            "metric": "pearson"}
    found = verdict_on(changed(as_predicted(made_up_run()), dims, value), PAPER, paper=load_paper())
    assert not found.agrees
    [outside] = found.outside
    assert outside.name == "Table 5: marginals, A12L6, layer last, 2-layer, treebank, width 4, pearson"


def test_a_missing_table_disagrees_with_the_paper():
    found = verdict_on([m for m in as_predicted(made_up_run()) if m.table != "control"], PAPER, paper=load_paper())
    assert {j.verdict for j in found.outside} == {Verdict.MISSING}
    assert not found.agrees


def test_another_treebank_at_paper_scale_is_not_compared_with_the_paper():
    metrics = changed(made_up_run(), {"table": "treebank", "group": "train"}, 29_000)
    found = verdict_on(metrics, PAPER, paper=load_paper())
    assert not [j for j in found.judgements if j.against == "paper"]
    assert found.agrees


def test_nothing_measured_does_not_agree(record):
    assert not verdict_on([], PAPER, paper=load_paper()).agrees
    assert not verdict_on([], FIRST_SEED, record).agrees
    assert not verdict_on([], dataclasses.replace(FIRST_SEED, treebank="other"), record).agrees


# ---- a recorded seed -------------------------------------------------------------------------------------------------


def test_a_recorded_seed_agrees_with_its_own_record(record):
    found = verdict_on(record.metrics(0), FIRST_SEED, record, claims=CLAIMS)
    assert found.agrees
    assert found.how == "training curves repeat those of the recorded seed"
    assert summary.agreement(found).startswith("This run agrees with the recorded runs: ")


@pytest.mark.parametrize(("dims", "add", "agrees"), [
    (EXACT_F1, 0.1, True), (EXACT_F1, 0.3, False),  # without training: rounding
    ({"table": "treebank", "group": "train"}, 1.0, False),  # counts are equal or not
    (PROBE_F1 | {"layer": 12}, 3.0, True),  # one layer of thirteen: the mean of the series moves by 0.23
    ({name: value for name, value in PROBE_F1.items() if name != "layer"}, 1.6, False),  # every layer
    ({"table": "marginals", "model": BASE, "probe": "linear", "setting": "treebank"}, 0.02, False)])
def test_what_may_differ_at_a_recorded_seed_is_one_constant_a_unit(record, dims, add, agrees):
    assert verdict_on(changed(record.metrics(0), dims, add=add), FIRST_SEED, record).agrees == agrees


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("dims", [PROBE_F1, EXACT_F1])
def test_an_undefined_number_disagrees(record, dims, value):
    for run in (FIRST_SEED, OTHER_SEED):
        assert not verdict_on(changed(record.metrics(0), dims, value), run, record).agrees


def test_a_number_that_was_always_undefined_agrees_when_it_is_undefined_again():
    found = Record("smoke", "trees", "settings", {}, {})
    for seed in range(5):
        found = add_seed(found, seed, Numbers(changed(made_up_run(seed), PROBE_F1, math.nan)), "")
    assert verdict_on(found.metrics(0), FIRST_SEED, found).agrees
    assert verdict_on(found.metrics(0), OTHER_SEED, found).agrees


@pytest.mark.parametrize("run", [FIRST_SEED, OTHER_SEED])
def test_missing_and_new_numbers_disagree(record, run):
    metrics = record.metrics(0)
    without = [m for m in metrics if m.table != "attention"]
    assert Verdict.MISSING in {j.verdict for j in verdict_on(without, run, record).outside}
    extra = [*metrics, metrics[0].at(model="unheard of")]
    assert [j.verdict for j in verdict_on(extra, run, record).outside] == [Verdict.NEW]


def test_training_that_took_another_course_is_judged_as_another_seed(record):
    metrics = changed(record.metrics(0), {"table": "loss_curve", "step": 500, "group": "training"}, add=0.001)
    found = verdict_on(metrics, FIRST_SEED, record)
    assert found.how == "training took another course than at the recorded seed"
    assert found.agrees
    # without training, the recorded seed's numbers still count one by one
    assert not verdict_on(changed(metrics, EXACT_F1, add=0.3), FIRST_SEED, record).agrees


# ---- another seed ----------------------------------------------------------------------------------------------------


def test_another_seed_agrees_within_three_times_the_range(record):
    metrics = made_up_run(7, noise=0.2)
    found = verdict_on(metrics, OTHER_SEED, record, claims=CLAIMS)
    assert found.agrees
    assert {j.against for j in found.judgements} == {"mean"}
    dims = {"table": "parsing", "model": BASE, "metric": "sentence_f1"}
    mean = next(j for j in found.judgements if j.name.startswith("parsing, A12L12") and "sentence_f1" in j.name)
    values = [sum(v for k, v in of_seed.items() if k in mean.keys) / len(mean.keys)
              for of_seed in record.by_seed.values()]
    limit = max(3 * (max(values) - min(values)), ROUNDING["percent"])
    assert mean.allowed == f"± {limit:.3g}"
    for add, verdict in ((0.5 * limit, Verdict.AGREES), (2.0 * limit, Verdict.DIFFERS)):
        moved = verdict_on(changed(metrics, dims, add=add), OTHER_SEED, record)
        assert next(j for j in moved.judgements if j.name == mean.name).verdict == verdict


def test_one_percent_of_the_means_may_lie_outside(record):
    metrics = made_up_run(7, noise=0.2)
    n_means = len({(m.table, m.model, m.metric) for m in metrics})
    found = verdict_on(metrics, OTHER_SEED, record)
    assert found.n_allowed == n_means // 100 == 2
    one = changed(metrics, {"table": "attention", "model": "A12L3"}, add=50.0)
    assert verdict_on(one, OTHER_SEED, record).agrees
    assert "1 of the means lies outside" in summary.agreement(verdict_on(one, OTHER_SEED, record))
    two = changed(one, {"table": "attention", "model": "A12L6"}, add=50.0)
    assert verdict_on(two, OTHER_SEED, record).agrees
    found = verdict_on(changed(two, {"table": "attention", "model": "A3L12"}, add=50.0), OTHER_SEED, record)
    assert not found.agrees
    assert "DISAGREES with the recorded runs in 3 means" in summary.agreement(found)


def test_with_fewer_than_five_seeds_another_seed_is_not_judged():
    few = recorded(range(4))
    found = verdict_on(changed(made_up_run(7), PROBE_F1, 20.0), OTHER_SEED, few)
    assert found.agrees
    assert {j.verdict for j in found.judgements} == {Verdict.NOT_JUDGED}
    assert "no numbers compared (4 seeds are recorded, 5 are needed" in summary.agreement(found)


@pytest.mark.parametrize("change", ["treebank", "config"])
def test_a_record_of_something_else_does_not_apply_but_claims_are_evaluated(record, change):
    run = dataclasses.replace(FIRST_SEED, **{change: "other"})
    found = verdict_on(changed(made_up_run(), {"table": "parsing", "model": BASE}, 20.0), run, record, claims=CLAIMS)
    assert found.agrees
    assert summary.agreement(found).startswith("No recorded run to compare with: ")
    by_id = {one.claim.id: one.outcome for one in found.claims}
    assert by_id["small-models-worst-parsing"] == "fails"


# ---- claims ----------------------------------------------------------------------------------------------------------


ALIKE = next(claim for claim in CLAIMS if claim.id == "attention-alike")
FORTY = next(claim for claim in CLAIMS if claim.id == "right-branching-under-forty")


def test_findings_of_the_paper_of_this_project_and_sanity_checks_are_counted_apart(record):
    text = summary.findings(verdict_on(made_up_run(), FIRST_SEED, record, claims=CLAIMS))
    for group in ("findings of the paper", "findings of this project", "sanity checks"):
        n = sum(claim.group == group for claim in CLAIMS)
        assert f"{n} {group}: " in text
    assert text.endswith(f"{sum(claim.is_check for claim in CLAIMS)} passed.")


def turned(metrics, is_turned=True):
    """Attention on treebank text turned round: the claim attention-alike fails, far from its bound."""
    return [m.at(value=10 - m.value) if is_turned and m.table == "attention" and m.setting == "treebank" else m
            for m in metrics]


@pytest.mark.parametrize(("outcomes", "holds", "recorded_as", "agrees"), [
    ((True, True, True, True, True), True, "holds", True),
    ((True, True, True, True, True), False, "holds", False),
    ((False, False, False, False, False), False, "fails", True),
    ((False, False, False, False, False), True, "fails", False),  # a success nobody recorded is a change too
    ((True, False, True, True, True), True, "varies", True),
    ((True, False, True, True, True), False, "varies", True)])
def test_a_claim_must_come_out_as_recorded(outcomes, holds, recorded_as, agrees):
    found = Record("smoke", "trees", "settings", {}, {})
    for seed, held in enumerate(outcomes):
        found = add_seed(found, seed, Numbers(turned(made_up_run(seed), not held)), "")
    found = judge_claims(found, [ALIKE])
    for run in (FIRST_SEED, OTHER_SEED):
        [one] = verdict_on(turned(made_up_run(0), not holds), run, found, claims=[ALIKE]).claims
        assert one.recorded.outcome == recorded_as
        assert one.outcome == ("holds" if holds else "fails")
        assert one.agrees == agrees


def test_a_claim_near_its_bound_may_turn_within_three_times_the_range():
    dims = {"table": "parsers", "model": "right", "setting": "treebank", "convention": "KIM", "metric": "sentence_f1"}
    found = Record("smoke", "trees", "settings", {}, {})
    for seed, value in enumerate((39.5, 39.7, 39.6, 39.8, 39.9)):
        found = add_seed(found, seed, Numbers(changed(made_up_run(), dims, value)), "")
    found = judge_claims(found, [FORTY])
    for value, agrees in ((40.5, True), (45.0, False)):
        [one] = verdict_on(changed(made_up_run(), dims, value), OTHER_SEED, found, claims=[FORTY]).claims
        assert (one.outcome, one.agrees) == ("fails", agrees)


def test_a_claim_whose_numbers_are_missing_disagrees(record):
    metrics = [m for m in record.metrics(0) if m.table != "attention"]
    [one] = [one for one in verdict_on(metrics, FIRST_SEED, record, claims=CLAIMS).claims if one.claim is ALIKE]
    assert (one.outcome, one.agrees) == ("missing", False)


def test_claims_of_the_papers_scale_are_shown_with_their_values_and_not_counted_as_shown(record):
    found = verdict_on(made_up_run(), OTHER_SEED, record, claims=CLAIMS)
    statuses = {one.claim.id: summary.status(one, "smoke") for one in found.claims}
    assert statuses["decent-parsing"] == "not testable here"
    assert "70.15,at least 70" in summary.to_csv(found)
    assert "not testable here" in summary.findings(found)
    at_scale = verdict_on(made_up_run(), PAPER, paper=load_paper(), claims=CLAIMS)
    by_status = {"also holds without training": UNTRAINED_TOO, "holds, no control": WITHOUT_CONTROL}
    for one in at_scale.claims:
        expected = [kind for kind, ids in by_status.items() if one.claim.id in ids]
        assert summary.status(one, "paper") == \
            (expected[0] if expected else "passed" if one.claim.is_check else "shown"), one.claim.id
    assert summary.central(at_scale) == "10 of 10 central findings shown."


def test_the_summary_fits_a_screen_and_ends_with_the_verdict(record):
    text = summary.summarise(verdict_on(made_up_run(7, 0.2), OTHER_SEED, record, claims=CLAIMS))
    assert len(text.splitlines()) < 40
    assert all(len(line) <= 132 for line in text.splitlines()[:-3])
    assert text.splitlines()[-1].startswith("This run agrees with the recorded runs: ")


# ---- recording -------------------------------------------------------------------------------------------------------


def test_a_record_survives_being_written_and_read(record):
    again = parse_record("smoke", numbers_csv(record), claims_csv(record))
    assert again.seeds == record.seeds
    assert again.units == record.units
    assert again.notes == record.notes
    for seed in record.seeds:
        for key, value in record.by_seed[seed].items():
            assert math.isclose(again.by_seed[seed][key], value, rel_tol=5e-6)
    assert {name: claim.outcome for name, claim in again.claims.items()} \
        == {name: claim.outcome for name, claim in record.claims.items()}


def test_a_number_that_no_seed_moves_stands_there_once():
    lines = numbers_csv(recorded(range(2))).splitlines()
    assert "treebank,,,,,,,,,,train,,,,trees,count,39832" in lines
    moved = next(line for line in lines if line.startswith("approximation,vm,exact") and "sentence_f1" in line)
    assert len(moved.split(",")) == len(lines[5].split(","))


@pytest.mark.parametrize(("treebank", "config", "words"), [
    ("others", "settings", "of another treebank"), ("trees", "others", "of another configuration")])
def test_seeds_of_other_data_or_settings_are_not_mixed(record, treebank, config, words):
    with pytest.raises(StageError, match=words):
        refuse_other(record, treebank, config)


def test_explanations_are_kept_when_claims_are_judged_again(record):
    name = ("attention-alike", "")
    explained = dataclasses.replace(record, claims={**record.claims, name: dataclasses.replace(
        record.claims[name], explanation="too few heads")})
    again = judge_claims(add_seed(explained, 5, Numbers(turned(made_up_run(5))), ""), CLAIMS).claims[name]
    assert (again.outcome, again.explanation) == ("varies", "too few heads")
