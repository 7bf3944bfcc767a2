"""F1 of the latent-variable PCFG against its number of states, beside the PCFG's."""

from __future__ import annotations

from collections.abc import Sequence

from pcfg_artifact.artifacts import Metric
from pcfg_artifact.cells import PLAIN_GRAMMAR, STATES, Cell, f1_of_states
from pcfg_artifact.verification.drawing import MARKERS, SERIES, Drawing, colour, finish, new_figure, styled

CURVES = {"sentence_f1": "PB, sentence", "corpus_f1": "PB, corpus",
          "sentence_f1_KIM": "KIM, sentence", "corpus_f1_KIM": "KIM, corpus"}


@styled
def f1_by_states(metrics: Sequence[Metric]) -> Drawing:
    """One line per way of scoring; the dashed line of its colour is the plain PCFG."""
    value = {Cell(metric.table, metric.row, metric.column): metric.value for metric in metrics}
    states = sorted({m for cell in value if (m := STATES.index(cell.row)) is not None})
    figure, [[axis]] = new_figure(6.4, 3.4)
    for index, (column, label) in enumerate(CURVES.items()):
        line = colour(SERIES[index])
        axis.axhline(value[f1_of_states(PLAIN_GRAMMAR, column)], color=line, linestyle="--", linewidth=1.0)
        axis.plot(states, [value[f1_of_states(STATES(m), column)] for m in states], color=line,
                  marker=MARKERS[index], label=label)
    axis.set(xlabel="latent states of a symbol, at most", ylabel="F1 (percent)", xticks=states)
    axis.legend()
    return finish(figure, "f1_by_states", "F1 by number of latent states",
                  "Unlabelled F1 on the test sentences of the spectral latent-variable PCFG, Labelled Recall; dashed: "
                  "the plain PCFG over the same rules, which is the case of one state.")
