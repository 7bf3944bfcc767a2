"""What a limit must not reach: the answer that needs no model."""

from __future__ import annotations

import math

import pytest

from pcfg_artifact.cells import Cell
from pcfg_artifact.verification.trivial import distance

SLOPE = Cell("interventions", "A4L3 linear probe", "slope")
STEP_SLOPE = Cell("figure_dynamics", "A4L3 random direction slope", "step 7")
CONTROL, TASK = Cell("table8", "linear control", "l=3"), Cell("table8", "linear marginal", "l=3")
SELECTIVITY = Cell("table8", "linear selectivity", "l=3")
LOSS = Cell("next_word_gap", "C4L3 length 1-5", "kl")
VALUES = {SLOPE: 0.002, STEP_SLOPE: -0.001, CONTROL: 0.1, TASK: 0.7, SELECTIVITY: 0.6, LOSS: 0.05,
          Cell("next_word", "C4L3", "exact"): 60.0, Cell("next_word", "C4L3", "unigram"): 220.0}


@pytest.mark.parametrize(("cell", "unit", "expected"), [
    (SLOPE, "fraction", 0.998),  # the whole effect
    (STEP_SLOPE, "fraction", 1.001),
    (CONTROL, "fraction", 0.6),  # its task
    (SELECTIVITY, "fraction", 0.6),  # none
    (LOSS, "nats", math.log(220 / 60) - 0.05),  # the unigram model
])
def test_distance_from_what_needs_no_model(cell, unit, expected):
    assert distance(cell, unit, VALUES) == pytest.approx(expected)


@pytest.mark.parametrize("cell", [
    Cell("interventions", "A4L3 linear probe", "slope error"),
    Cell("figure_dynamics", "A4L3 intervention slope error", "step 7"),
    Cell("spread", "A4L3 2-layer PTB sentence_f1", "sd"),
    Cell("against_optimum", "A4L3 mask 0.15", "excess_standard_error")])
def test_a_precision_has_no_trivial_answer(cell):
    assert distance(cell, "fraction", {cell: 0.01}) == math.inf
