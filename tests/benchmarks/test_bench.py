"""The tool bench: what a user types, sees and gets wrong."""

import json
import sys

import pytest

from benchmarks import parsing, prefix
from pcfg_artifact.cli import main
from pcfg_artifact.grammar.pcfg import PCFG

GRAMMAR = PCFG.from_rules(
    root={"S": 1.0}, binary=[("S", "N", "V", 0.5), ("S", "N", "S", 0.5)],
    lexical=[("N", "dogs", 0.75), ("N", "UNK-LC-s", 0.25), ("V", "bark", 0.5), ("V", "UNK-LC", 0.5)])


def test_bench_prints_one_table_or_json(monkeypatch, capsys):
    rows = [{"what": "a", "sentences/s": 1234.5}, {"what": "longer name", "on": "x", "sentences/s": 2.0}]
    monkeypatch.setattr(parsing, "run", lambda args: rows)
    assert main(["bench"]) == 0
    assert capsys.readouterr().out.splitlines() == ["what         sentences/s  on", "a                  1,234",
                                                    "longer name            2   x"]
    assert main(["bench", "parsing", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == rows


def test_bench_rows_of_small_sizes_name_every_engine():
    grammar = PCFG.from_rules(root={"S": 1.0}, binary=[("S", "S", "S", 0.3), ("S", "A", "A", 0.7)],
                              lexical=[("A", "x", 0.5), ("A", "y", 0.5)])
    found = list(parsing.engines(grammar, [["x", "y"] * 3, ["y"] * 8]))
    assert [row["what"].split(":")[0] for row in found] == ["cpu", "cpu", "cpu", "cpu", "reference"]
    assert all(row["sentences/s"] > 0 and row["peak MB"] > 0 for row in found)


def test_bench_prefix_measures_next_words_beside_inside_outside():
    found = list(prefix.treebank_sentences(GRAMMAR, [["dogs", "dogs", "bark"], ["dogs", "bark"]], None))
    assert [row["what"].split(":")[0] for row in found] == ["cpu", "prefix", "prefix"]
    assert found[1]["times as long"] == pytest.approx(found[1]["ms/sentence"] / found[0]["ms/sentence"])
    assert all(row["sentences/s"] > 0 and row["peak MB"] > 0 for row in found)


def test_bench_prefix_refuses_what_is_no_checkout(tmp_path, capsys):
    assert main(["bench", "prefix", "--treebank", "embedded", "--against", str(tmp_path)]) == 2
    assert "holds no folder pcfg_artifact" in capsys.readouterr().err


def test_bench_says_where_it_is_when_it_is_not_here(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "benchmarks.bench", None)
    assert main(["bench"]) == 2
    assert capsys.readouterr().err.startswith("error: the benchmarks are not part of the installed package")
