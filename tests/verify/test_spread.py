"""How far numbers may lie from the record, on hand-made records whose answer can be seen."""

import dataclasses
import math

import numpy as np
import pytest

from pcfg_artifact.cells import Cell
from pcfg_artifact.errors import StageError
from pcfg_artifact.verification.claim_outcomes import Comparison
from pcfg_artifact.verification.comparison import Run, Verdict, judge, passed
from pcfg_artifact.verification.expectations import Rerun, add_rerun, add_seed
from pcfg_artifact.verification.families import family, in_words, part
from pcfg_artifact.verification.history import History
from pcfg_artifact.verification.measured import Value
from pcfg_artifact.verification.spread import FLOOR, Spread, has_repeated, moved_exact_cells


def of_cells(by_seed, unit="percent", stage="probe"):
    """A record of a few hand-made cells."""
    found = None
    for seed, values in by_seed.items():
        measured = {cell: Value(number, unit) for cell, number in values.items()}
        found = add_seed(found, "smoke", "trees", "settings", seed, measured,
                                     dict.fromkeys(measured, stage), "commit 0")
    return found


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
    assert {j.verdict for j in judgements if j.against == "record"} == {Verdict.MATCH}  # each could be another seed
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
    assert not has_repeated(record, 0, {**same, curves[1]: Value(3.001, "nats")})
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


def test_counts_that_never_vary_are_exact():
    cell = Cell("grammar", "interminals", "vm")
    limits = Spread(of_cells({s: {cell: 71.0} for s in range(3)}, unit="count", stage="grammar")).limits(7)
    assert limits[cell].width == 0.0


@pytest.mark.parametrize(("factor", "said"), [(1.014, "+1.4%"), (2.3, "+130%"), (6.57, "+557%"), (0.5, "-50%"),
                                              (30, "more than 10 times"), (0.01, "less than 1 in 10")])
def test_shifts_of_perplexities_are_said_as_a_reader_thinks_of_them(factor, said):
    assert in_words(math.log(factor), "perplexity") == said


def test_drift_is_measured_against_a_recorded_seed():
    cell = Cell("grammar", "interminals", "vm")
    record = of_cells({0: {cell: 71.0}})
    with pytest.raises(StageError, match="seed 5 is not recorded"):
        add_rerun(record, Rerun(5, "sse"), "trees", "settings", {cell: Value(71.0, "count")}, "commit 0")
