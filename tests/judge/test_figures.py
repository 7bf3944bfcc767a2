"""Figures: drawn from numbers by their dimensions, so that what is new is drawn, and named by its own name."""

import pytest
from matplotlib.figure import Figure

from pcfg_artifact.judge import figures
from pcfg_artifact.judge.figures import (
    FIGURES,
    f1_by_layer,
    f1_by_width,
    marginals,
    probe_comparison,
    scatter,
    trees_at_a_glance,
)
from pcfg_artifact.judge.figures_beyond_paper import BEYOND_THE_PAPER, dynamics, interventions
from pcfg_artifact.judge.paper import as_numbers
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.run.expected import load_paper
from tests.judge.toys import ENCODER, PARSER, PROBE, with_toys

SUBPLOTS = Figure.subplots
SCATTER = {"model": "A4L3", "layer": 3, "lengths": {
    "2": {"true": [0.1, 0.9], "predicted": [0.2, 0.8], "slope": 1.0, "intercept": 0.0}}}


def texts(drawing) -> str:
    """All words of a figure: SVG keeps them as text."""
    return drawing.svg + drawing.caption


@pytest.mark.parametrize("figure", [*FIGURES, *BEYOND_THE_PAPER], ids=lambda figure: figure.__name__)
def test_every_figure_is_drawn_from_a_run_and_none_from_nothing(figure, smoke_numbers):
    drawing = figure(smoke_numbers)
    assert drawing.png.startswith(b"\x89PNG")
    assert drawing.svg.startswith("<svg")
    assert len(drawing.caption) > 40
    assert figure(Numbers([])) is None


def test_the_first_figure_has_the_untrained_model_exact_inference_and_the_papers_marks(smoke_numbers):
    drawing = trees_at_a_glance(smoke_numbers, as_numbers(load_paper()))
    for label in ("A4L3", "untrained", "Inside-Outside", "the paper (12 layers)", "69.3", "78.8", "41"):
        assert f">{label}<" in texts(drawing), label
    assert "the paper" not in texts(trees_at_a_glance(smoke_numbers, Numbers([])))
    assert trees_at_a_glance(Numbers([]), Numbers([])) is None


@pytest.mark.parametrize("figure", [*FIGURES, *BEYOND_THE_PAPER], ids=lambda figure: figure.__name__)
def test_a_figure_has_six_panels_at_most(figure, smoke_numbers, monkeypatch):
    panels = []
    monkeypatch.setattr(Figure, "subplots", lambda self, *args, **options: panels.append(
        args) or SUBPLOTS(self, *args, **options))
    figure(smoke_numbers)
    assert all(rows * columns <= 6 for rows, columns in panels)


@pytest.mark.parametrize("figure", [f1_by_layer, probe_comparison, marginals, f1_by_width],
                         ids=lambda figure: figure.__name__)
def test_a_third_probe_is_drawn(figure, smoke_numbers):
    assert PROBE not in texts(figure(smoke_numbers))
    assert PROBE in texts(figure(with_toys(smoke_numbers)))


def test_an_encoder_and_a_parser_of_any_name_are_drawn(smoke_numbers):
    toys = with_toys(smoke_numbers)
    assert ENCODER in texts(f1_by_layer(toys))
    assert ENCODER in texts(figures.loss_curves(toys))
    assert PARSER in texts(f1_by_width(toys))


def test_no_figure_names_a_probe_that_the_run_has_not(smoke_numbers):
    renamed = {"2-layer": "deep one", "linear": "straight one"}
    numbers = Numbers([m.at(probe=renamed.get(m.probe, m.probe)) for m in smoke_numbers.metrics])
    for figure in (f1_by_layer, probe_comparison, marginals, f1_by_width, interventions):
        drawn = texts(figure(numbers))
        assert "2-layer" not in drawn, figure.__name__
        assert "one" in drawn, figure.__name__
    assert "deep one probe, layer 3 of A4L3" in scatter({**SCATTER, "probe": "deep one"}).caption


def test_both_paper_probes_are_drawn_where_the_paper_draws_them(smoke_numbers):
    assert "2-layer" not in texts(f1_by_layer(smoke_numbers))
    assert "settings, 2-layer probe" in texts(marginals(smoke_numbers))
    assert "2-layer, layer 0" in texts(probe_comparison(smoke_numbers))


def test_curves_of_one_panel_are_told_apart_by_what_differs(smoke_numbers):
    drawn = texts(dynamics(smoke_numbers))
    for label in ("width 2", "width 10", "layer 1", "linear probe", "random direction"):
        assert f">{label}<" in drawn, label
