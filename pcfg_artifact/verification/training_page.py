"""The tables of docs/PRETRAINING.md that follow from the record: how near to the optimum models are, what they know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from pcfg_artifact import cells
from pcfg_artifact.cells import HEAD, LAYER, SENTENCE_F1, SPAN_LENGTH, STEP, TREEBANK, TREES, Cell, natural
from pcfg_artifact.roles import Roles, find_roles, untrained
from pcfg_artifact.verification.expectations import Record
from pcfg_artifact.verification.families import PROBES
from pcfg_artifact.verification.recorded_tables import Values, computed, over_seeds, table

MASKS = "mask 0.15"
PEARSON = "pearson"


def training_tables(record: Record) -> dict[str, str]:
    """Name of a table on the page -> the table."""
    roles = find_roles(record.units)
    if roles.base is None:
        return {}
    base, last = roles.base, roles.layers(roles.base)
    return {"distance": distance_table(record, roles, base), "layers": layers_table(record, base, last),
            "marginals": marginals_table(record, base, last), "attention": attention_table(record, roles),
            "steps": steps_table(record, base)}


def distance_table(record: Record, roles: Roles, base: str) -> str:
    """Perplexity of the same masked words, the share of the way from unigram to optimum, and F1 of the best layer."""

    def perplexity(model: str, column: str) -> str:
        return over_seeds(record, cells.against_optimum(model, MASKS, column), ".1f")

    def f1(parser: str) -> list[str]:
        return [over_seeds(record, cells.best_f1(probe, TREEBANK.name, SENTENCE_F1, parser), ".1f") for probe in PROBES]

    rows = [["unigram model", perplexity(base, "unigram"), "0", "", ""]]
    rows += [[model, perplexity(model, "model"), computed(record, partial(percent_closed, model), ".1f"), *f1(model)]
             for model in sorted(roles.models, key=natural)]
    rows += [[f"{base} before its first step", "", "", *f1(untrained(base))],
             ["exact", perplexity(base, "exact"), "100", *f1("IO")]]
    return table(["", "perplexity", "% of the way", *(f"F1, {probe} probe" for probe in PROBES)], rows)


def percent_closed(model: str, values: Values) -> float:
    """How much of the way from the unigram model's loss to the optimum's a model has gone."""
    unigram, exact, here = (math.log(values[cells.against_optimum(model, MASKS, column)])
                            for column in ("unigram", "exact", "model"))
    return 100 * (unigram - here) / (unigram - exact)


def layers_table(record: Record, base: str, last: int) -> str:
    """F1 of treebank sentences from every layer of the base model, before and after training."""
    layers = range(last + 1)
    rows = [[f"{probe}, {when}", *(over_seeds(record, cells.layer_score(
                model, probe, TREEBANK.name, TREES, SENTENCE_F1, layer), ".1f") for layer in layers)]
            for probe in PROBES for when, model in (("trained", base), ("before training", untrained(base)))]
    return table([f"probe of {base}", *map(LAYER, layers)], rows)


def marginals_table(record: Record, base: str, last: int) -> str:
    """Correlation with span marginals from layer 0 and from the last layer, by length of the span."""
    tasks = sorted({cell.column for cell in record.units if cell.table == "figure_marginals"
                    and SPAN_LENGTH.index(cell.column) is not None}, key=natural)
    rows = []
    for probe in PROBES:
        given, first, final = (
            [cells.marginal_score(model, probe, TREEBANK.name, layer, PEARSON, task) for task in tasks]
            for model, layer in ((untrained(base), 0), (base, 0), (base, last)))
        rows += [[f"{probe}, {name}", *(over_seeds(record, cell, ".3f") for cell in row)] for name, row in
                 (("layer 0 before training", given), ("layer 0", first), (f"layer {last}", final))]
        rows.append([f"{probe}, gained", *(computed(record, partial(gain, *pair), ".3f")
                                           for pair in zip(first, final, strict=True))])
    return table([f"probe of {base}", *tasks], rows)


def gain(first: Cell, second: Cell, values: Values) -> float:
    return values[second] - values[first]


def attention_table(record: Record, roles: Roles) -> str:
    """Mean attended distance of the heads of every layer, on treebank sentences."""
    deepest = max(map(roles.layers, roles.models))
    rows = []
    for model in sorted(roles.models, key=natural):
        layers = [[Cell("figure_attention", cells.attention_row(model, TREEBANK.name, layer), HEAD(head))
                   for head in range(1, roles.heads(model) + 1)] for layer in range(1, roles.layers(model) + 1)]
        rows.append([model, *(computed(record, partial(mean, heads), ".1f") for heads in layers),
                     *[""] * (deepest - len(layers))])
    return table(["", *map(LAYER, range(1, deepest + 1))], rows)


def mean(of: Sequence[Cell], values: Values) -> float:
    return sum(values[cell] for cell in of) / len(of)


def steps_table(record: Record, base: str) -> str:
    """What the base model knows at every kept step: loss, tree and marginals at one layer, attention of all."""
    of_base = [cell for cell in record.units if cell.table == "figure_dynamics" and cells.has_model(cell.row, base)
               and not cell.row.endswith("error") and "slope" not in cell.row]
    quantities = sorted({cell.row for cell in of_base}, key=natural)
    steps = sorted({step for cell in of_base if (step := STEP.index(cell.column)) is not None})
    digits = {"loss": ".2f", "tree": ".1f", "marginals": ".2f", "attended": ".1f"}
    rows = [[f"{step:,}", *(over_seeds(record, Cell("figure_dynamics", row, STEP(step)),
                                       digits[row.split()[1]]) for row in quantities)] for step in steps]
    return table(["step", *(row.removeprefix(f"{base} ") for row in quantities)], rows)
