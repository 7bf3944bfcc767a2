"""A new probe, engine and grammar: a class and its registry entry are all that tables, figures and claims need."""

import dataclasses

import numpy as np
import pytest

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.judge.claims import FAILS, HOLDS, compare, parse_claims
from pcfg_artifact.judge.figures import f1_by_layer, f1_by_width, probe_comparison
from pcfg_artifact.judge.tables import lay_out
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.parsing.decoding import labelled_recall
from pcfg_artifact.parsing.engine import ENGINES, inside_outside
from pcfg_artifact.parsing.reference import ReferenceEngine
from pcfg_artifact.parsing.scoring import span_f1
from pcfg_artifact.probing import probes
from pcfg_artifact.probing.linear_probe import LinearProbe
from pcfg_artifact.treebank.brackets import parse_trees

PROBE, ENGINE, GRAMMAR = "toy probe", "toy engine", "toy grammar"
TREES, _ = parse_trees("(S (NP (DT the) (NN dog)) (VP (VBZ eats) (NP (DT the) (NN fish))))\n", "toy")
SETTING = {"setting": "treebank"}


class ToyEngine(ReferenceEngine):
    """Counts its charts, so that a test sees that it ran."""

    n_charts = 0

    def charts(self, leaves, forbidden=()):
        ToyEngine.n_charts += len(leaves)
        return super().charts(leaves, forbidden)


class ToyProbe(LinearProbe):
    """The linear probe under another name."""


@pytest.fixture
def numbers(smoke_numbers, monkeypatch) -> Numbers:
    """A run of smoke, with the numbers of the toys as they themselves computed them."""
    monkeypatch.setitem(ENGINES, ENGINE, ToyEngine)
    monkeypatch.setitem(probes.PROBES, PROBE, ToyProbe)
    grammar = PCFG.from_rules(
        root={"S": 1.0}, binary=[("S", "NP", "VP", 1.0), ("NP", "D", "N", 1.0), ("VP", "V", "NP", 1.0)],
        lexical=[("D", "the", 1.0), ("N", "dog", 0.5), ("N", "fish", 0.5), ("V", "eats", 1.0)])
    before = ToyEngine.n_charts
    spans = [labelled_recall(chart) for chart in inside_outside(grammar, [t.words() for t in TREES], backend=ENGINE)]
    assert ToyEngine.n_charts == before + 1
    f1 = span_f1(TREES, spans)
    widths = [Metric(table="parsing", model=ENGINE, convention="PB", width=width, metric="f1", value=value, n=1,
                     unit="percent", **SETTING) for width, value in f1.by_length.items()]
    probe = probes.build_probes([PROBE], {})[PROBE]
    assert isinstance(probe, ToyProbe)
    x = np.eye(6, dtype=np.float32)
    fitted = probe.fit(x, np.array([0, 1, 2, 0, 1, 2]), (0,), device="cpu", overwrite_x=False)
    accuracy = 100 * float(np.mean(fitted.predict(x)[0] == [0, 1, 2, 0, 1, 2]))
    read = [Metric(table="parsing", model="A4L3", layer=layer, probe=PROBE, input=given, convention="PB",
                   metric="sentence_f1", value=accuracy, n=6, unit="percent", setting=setting)
            for layer in range(4) for given in ("EOS", "ADJ") for setting in ("sampled", "treebank", "ood")]
    return Numbers([*smoke_numbers.metrics, *f1.metrics("parsing", model=ENGINE, **SETTING), *widths, *read,
                    *f1.metrics("approximation", model="exact", grammar=GRAMMAR)])


def test_they_appear_in_tables(numbers):
    tables = {table.id: table for table in lay_out(numbers, [], {})}
    rows = [label for table in tables.values() for label in (*table.rows.values(), *table.columns.values())]
    assert any(PROBE in label for label in rows)
    assert any(ENGINE in label for label in rows)
    assert any(GRAMMAR.replace(" ", "-") in name for name in tables)


def test_they_appear_in_figures(numbers):
    assert PROBE in probe_comparison(numbers).svg
    assert ENGINE in f1_by_width(numbers).svg
    assert f1_by_layer(numbers) is not None


def test_claims_select_them(numbers):
    f1 = {"metric": "sentence_f1", "convention": "PB"}
    cells = [{**f1, **SETTING, "table": "parsing", "model": "base", "layer": "best", "probe": PROBE, "input": "EOS"},
             {**f1, **SETTING, "table": "parsing", "model": ENGINE},
             {**f1, "table": "approximation", "grammar": GRAMMAR, "model": "exact"}]
    words = {"claim": "c", "source": "this test", "says": "s", "scale": "any", "reason": "r", "kind": "at_least",
             "bound": 100}
    claims = parse_claims([{**words, "id": str(index), "cells": cell} for index, cell in enumerate(cells)])
    assert [compare(claim, numbers).outcome for claim in claims] == [HOLDS] * 3
    too_much = [dataclasses.replace(claim, number=101.0) for claim in claims]
    assert [compare(claim, numbers).outcome for claim in too_much] == [FAILS] * 3
