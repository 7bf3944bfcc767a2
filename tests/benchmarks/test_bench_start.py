"""bench start: one row per start, on one exam, of which the optimum itself would have gone the whole way."""

import numpy as np
import pytest

from benchmarks import start
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.mlm.initialisation import PARTS
from pcfg_artifact.mlm.model import parse_shape


@pytest.fixture
def exam(monkeypatch):
    for name, value in {"SHAPE": parse_shape("A1L1"), "WIDTH": 16, "STEPS": 3, "WARMUP": 1, "N_EXACT": 30}.items():
        monkeypatch.setattr(start, name, value)
    grammar = PCFG.from_rules(
        root={"S": 1.0}, binary=[("S", "NP", "VP", 1.0), ("NP", "the", "N", 1.0), ("VP", "V", "NP", 1.0)],
        lexical=[("the", "the", 1.0), ("N", "dog", 0.6), ("N", "cat", 0.4), ("V", "saw", 0.7), ("V", "bit", 0.3)])
    return start.Exam(grammar, sample_trees(grammar, 60, 0).tokens), sample_trees(grammar, 200, 1).tokens


def test_every_start_gives_a_row(exam):
    rows = [start.row(*exam, name, "pre") for name in start.STARTS]
    assert [row["start"] for row in rows] == list(start.STARTS)
    assert all(np.isfinite(row["percent of the way"]) and row["percent of the way"] < 100 for row in rows)
    assert len({row["percent of the way"] for row in rows}) == len(rows)  # each start is another one


def test_starts_name_parts_that_exist():
    assert {part for parts in start.STARTS.values() for part in parts} == set(PARTS)


def test_the_optimum_loses_less_than_the_unigram_model(exam):
    assert exam[0].exact < exam[0].unigram
