"""Explanations of claims that fail: their numbers come from the record."""

import pytest

from pcfg_artifact.cells import Cell
from pcfg_artifact.errors import ConfigError
from pcfg_artifact.records import load_record, load_relations
from pcfg_artifact.verification.claim_outcomes import Comparison
from pcfg_artifact.verification.expectations import Record
from pcfg_artifact.verification.explanations import bare_numbers, explain
from pcfg_artifact.verification.history import History, history_of


@pytest.fixture
def record():
    cells = {Cell("table3", "A4L3", "validation_perplexity"): "perplexity", Cell("table5", "l=2", "A4L3"): "fraction",
             Cell("dynamics", "A4L3 tree F1", "half-way step"): "count"}
    numbers = {0: (41.6, 0.61, 447.03), 1: (53.1, 0.75, 1085.19)}
    return Record("smoke", "t", "c", cells, dict.fromkeys(cells, "probe"),
                  {seed: dict(zip(cells, values, strict=True)) for seed, values in numbers.items()})


HISTORY = History({0: Comparison(4.2, 3.0, False, "", "", ""), 1: Comparison(-1.26, 3.0, False, "", "", "")}, {})


@pytest.mark.parametrize(("text", "words"), [
    ("between [min table3 / {base} / validation_perplexity] and [max table3 / * / *]", "between 42 and 53"),
    ("[min table5 / l=2 / A4L3]", ".61"),
    ("[least] to [most], [behind] behind; [failing] of [runs]", "-1.26 to 4.2, 1.26 behind; 1 of 2"),
    ("[max dynamics / A4L3 tree F1 / half-way step]", "1,085"),
    ("by [most] to [most], [least] to [least].", "by 4.2, -1.26."),
    ("[runs] to [failing] of [failing] to [runs]", "2 to 1 of 1 to 2"),
])
def test_numbers_are_read_from_the_record(record, text, words):
    assert explain(text, record, HISTORY) == words


@pytest.mark.parametrize("text", ["[mean table3 / * / *]", "[max table9 / * / *]", "[max table3]"])
def test_what_the_record_does_not_say_is_refused(record, text):
    with pytest.raises(ConfigError, match="outcomes.csv of smoke"):
        explain(text, record, HISTORY)


def test_a_number_written_by_hand_is_found_and_names_are_not():
    assert bare_numbers("it is 7.9 points, in 3 of six cells") == ["7.9", "3"]
    names = "the 2-layer probe of A4L3 at layer 0 (the paper: below 41) with 20 in-terminals, [least]"
    assert bare_numbers(names) == []


@pytest.mark.parametrize("profile", ["smoke", "reduced"])
def test_recorded_explanations_name_no_number_that_the_record_does_not_say(profile):
    record, relations = load_record(profile), {relation.id: relation for relation in load_relations()}
    explained = [o for o in record.outcomes.values() if o.explanation and o.outcome != "holds"]
    assert explained
    assert {o.relation: bare_numbers(o.explanation) for o in explained if bare_numbers(o.explanation)} == {}
    for outcome in explained:
        words = explain(outcome.explanation, record, history_of(record, relations[outcome.relation]))
        assert "[" not in words
        assert "nan" not in words
