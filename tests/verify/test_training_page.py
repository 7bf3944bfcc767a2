"""The tables of docs/PRETRAINING.md from a made-up record: every field is the number of the cell it names."""

import math

import pytest

from pcfg_artifact import cells
from pcfg_artifact.verification.expectations import Record
from pcfg_artifact.verification.training_page import percent_closed, training_tables


def record_of(by_seed):
    every = {cell for values in by_seed.values() for cell in values}
    return Record("made up", "", "", dict.fromkeys(every, "fraction"), dict.fromkeys(every, "probe"), by_seed)


def seed_values(shift):
    values = {cells.perplexity(model, "validation"): 1.0 for model in ("A2L1", "A2L2")}
    for model, perplexity in (("A2L1", 200.0), ("A2L2", 100.0)):
        for column, value in (("unigram", 400.0), ("exact", 50.0), ("model", perplexity + shift)):
            values[cells.against_optimum(model, "mask 0.15", column)] = value
    for layer in (0, 2):
        values[cells.marginal_score("A2L2", "linear", "PTB", layer, "pearson", "l=2")] = 0.5 + 0.1 * layer + shift
    for model, n_layers in (("A2L1", 1), ("A2L2", 2)):
        for layer in range(1, n_layers + 1):
            for head in (1, 2):
                values[cells.attended_distance(model, "PTB", layer, head)] = layer + head + shift
    for step in (0, 10):
        values[cells.while_training("A2L2", "tree F1", step)] = 30.0 + step
        values[cells.while_training("A2L2", "tree F1 error", step)] = 1.0
    return values


@pytest.fixture
def tables():
    found = training_tables(record_of({0: seed_values(0.0), 3: seed_values(1.0)}))
    return {name: [[field.strip() for field in line.strip("|").split("|")] for line in table.splitlines()]
            for name, table in found.items()}


def test_the_share_of_the_way_is_one_of_losses():
    values = seed_values(0.0)
    assert percent_closed("A2L2", values) == pytest.approx(100 * math.log(4) / math.log(8))


def test_fields_hold_all_seeds_in_order_and_one_number_where_they_agree(tables):
    rows = {row[0]: row[1:] for row in tables["distance"]}
    assert rows["A2L2"][:2] == ["100.0 / 101.0", "66.7 / 66.2"]
    assert rows["unigram model"][:2] == ["400.0", "0"]
    assert rows["exact"][:2] == ["50.0", "100"]


def test_what_no_run_has_is_left_empty(tables):
    rows = {row[0]: row[1:] for row in tables["marginals"]}
    assert rows["linear, gained"] == ["0.200"]
    assert rows["2-layer, layer 0"] == [""]


def test_attention_is_the_mean_over_heads(tables):
    assert tables["attention"][2:] == [["A2L1", "2.5 / 3.5", ""], ["A2L2", "2.5 / 3.5", "3.5 / 4.5"]]


def test_steps_are_in_order_and_without_errors(tables):
    assert tables["steps"] == [["step", "tree F1"], ["---", "---"], ["0", "30.0"], ["10", "40.0"]]
