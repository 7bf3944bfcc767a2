"""The tables of docs/INTERVENTIONS.md from a made-up record."""

from pcfg_artifact import cells
from pcfg_artifact.verification.expectations import Record
from pcfg_artifact.verification.intervention_page import intervention_tables


def seed_values(shift):
    values = {cells.perplexity("A2L1", "validation"): 1.0, cells.half_way("A2L1", "tree F1"): 1200.0 + shift}
    for column, value in (("slope", 0.01), ("slope error", 0.002), ("agreeing signs", 0.5)):
        values[cells.intervention("A2L1", "linear probe", column)] = value + shift
        values[cells.intervention("other", "linear probe", column)] = value
        for layer in (0, 1):
            values[cells.intervention_by_layer("A2L1", "linear probe", layer, column)] = value + layer + shift
    return values


def test_effects_of_the_base_model_with_both_seeds_side_by_side():
    by_seed = {0: seed_values(0.0), 1: seed_values(1.0)}
    units, stages = (dict.fromkeys(by_seed[0], name) for name in ("fraction", "intervene"))
    tables = intervention_tables(Record("made up", "", "", units, stages, by_seed))
    assert tables["effects"].splitlines()[2:] == [
        "| A2L1 linear probe | 0.0100 / 1.0100 | 0.0020 / 1.0020 | 0.500 / 1.500 |"]
    assert tables["effects by layer"].splitlines()[2:] == [
        "| L0 | 0.0100 ± 0.0020 / 1.0100 ± 1.0020 |", "| L1 | 1.0100 ± 1.0020 / 2.0100 ± 2.0020 |"]
    assert tables["half-way"].splitlines() == ["|  | A2L1 |", "| --- | --- |", "| tree F1 | 1,200 / 1,201 |"]
