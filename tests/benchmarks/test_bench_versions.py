"""bench versions, threads and prefix: two checkouts in one process, threads, a peer's exact sums."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import prefix, threads, versions
from pcfg_artifact.cli import main
from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.engine import inside_outside

SENTENCES = [["she", "eats", "fish"] * 3, ["eats"] * 7, ["she", "fish", "eats", "she", "fish"] * 4]
ROUNDING = 1e-12  # of logs of products of some forty numbers


@pytest.fixture
def small_rounds(monkeypatch):
    monkeypatch.setattr(versions, "ROUNDS", 1)
    monkeypatch.setattr(threads, "ROUNDS", 1)


def test_charts_of_two_engines_are_compared_entry_by_entry(tiny_grammar, small_rounds):
    def before(sentences):
        return iter(inside_outside(tiny_grammar, sentences, backend="reference"))

    rows = list(versions.speeds(tiny_grammar, SENTENCES, before))
    assert [row["on"].split(";")[0] for row in rows] == [
        "2 sentences of 5 to 15 words", "1 sentences of 16 to 25 words", "all of them"]
    assert all(row["times as fast"] == pytest.approx(row["before ms"] / row["now ms"]) for row in rows)
    found, = versions.agreement(tiny_grammar, SENTENCES, before)
    assert found["on"] == "agreement on 3 sentences"
    assert found["largest difference"] < ROUNDING


def test_a_changed_rule_and_a_missing_one_are_seen():
    def grammar(weight: float) -> PCFG:
        return PCFG.from_rules(root={"S": 1.0}, binary=[("S", "S", "A", weight), ("S", "A", "A", 0.5)], is_proper=False,
                               lexical=[("A", "x", 1.0)])

    charts = [inside_outside(grammar(weight), [["x"] * 6])[0] for weight in (0.5, 0.25, 0.0)]
    # four uses of the rule that is half as likely: log Z, inside of the whole, outside of the first two words
    assert versions.difference(charts[0], charts[1]) == pytest.approx(4 * np.log(2))
    assert versions.difference(charts[0], charts[0]) == 0.0
    assert versions.difference(charts[0], charts[2]) == np.inf


def test_another_checkout_is_imported_beside_this_one(tiny_grammar, tmp_path):
    package = tmp_path / "checkout" / "pcfg_artifact"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "grammar.py").write_text(
        "class PCFG:\n    load = staticmethod(lambda folder: (folder.name, 'pcfg_artifact grammar'))\n")
    (package / "parsing.py").write_text(
        "from pcfg_artifact.grammar import PCFG\n"
        "def inside_outside(grammar, sentences, n_threads):\n"
        "    return [(PCFG.__module__, grammar, s) for s in sentences]\n")
    with versions.other_checkout(tmp_path / "checkout", tiny_grammar) as before:
        assert list(before([["she"]])) == [
            ("pcfg_before.grammar", ("grammar", "pcfg_artifact grammar"), ["she"])]
    assert not [name for name in sys.modules if name.startswith("pcfg_before")]
    with pytest.raises(UsageError, match="holds no folder pcfg_artifact"), \
            versions.other_checkout(tmp_path, tiny_grammar):
        pass


def test_bench_versions_asks_for_the_other_checkout(capsys):
    assert main(["bench", "versions"]) == 2
    assert "name it with --against" in capsys.readouterr().err


def test_bench_threads_compares_one_thread_with_all_cores(tiny_grammar, small_rounds):
    rows = [*threads.parsing(tiny_grammar, SENTENCES), *threads.sampling(tiny_grammar, 50)]
    assert [row["threads"] == 1 for row in rows] == [True, False, True, False]
    assert all(row["times as fast"] == 1.0 for row in rows[::2])


def test_genlm_sums_until_nothing_changes(tiny_grammar, monkeypatch):
    class Rules:
        def __init__(self, semiring, start, words):
            self.rules = []

        def add(self, *rule):
            self.rules.append(rule)

        def agenda(self):
            return "gave up"

        def naive_bottom_up(self):
            return "exact"

    installed = SimpleNamespace(CFG=Rules, Float=float, EarleyLM=lambda rules: (rules, rules.agenda()))
    monkeypatch.setitem(sys.modules, "genlm", SimpleNamespace(grammar=installed))
    monkeypatch.setitem(sys.modules, "genlm.grammar", installed)
    rules, total = prefix.genlm_model(tiny_grammar)
    assert total == "exact"
    assert rules.agenda() == "gave up"  # theirs again afterwards
    n_roots = np.count_nonzero(tiny_grammar.root)
    assert len(rules.rules) == n_roots + len(tiny_grammar.binary) + len(tiny_grammar.lexical)
