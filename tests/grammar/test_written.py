"""Empty rules removed, weights normalised: every string's probability against enumeration of the rules as written."""

import itertools
import math

import numpy as np
import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.rulefile import from_text
from pcfg_artifact.grammar.written import ROOT, Word
from pcfg_artifact.parsing.engine import log_probabilities

TIGHT = 1e-11
EMPTY = """
ROOT -> S 1.0
S -> A B A 0.6
S -> B 0.4
A -> '1' 0.5
A -> 0.5
B -> '2' 0.7
B -> A A 0.2
B -> 0.1
"""


def weights_of_strings(rules, root, longest):
    """String of at most `longest` words -> summed weight of its trees, and of those over nothing.

    Every symbol's table of strings is computed again from the others' until nothing changes.
    """
    tables = {head: {} for head, _, _ in rules}
    for _ in range(400):
        before = {head: dict(table) for head, table in tables.items()}
        tables = {head: {} for head in tables}
        for head, items, p in rules:
            parts = [{(x.text,): 1.0} if isinstance(x, Word) else before[x] for x in items]
            for chosen in itertools.product(*(part.items() for part in parts)):
                string = sum((words for words, _ in chosen), ())
                if len(string) <= longest:
                    weight = p * math.prod(weight for _, weight in chosen)
                    tables[head][string] = tables[head].get(string, 0.0) + weight
        if all(abs(weight - before[head].get(string, 0.0)) < 1e-16 for head, table in tables.items()
               for string, weight in table.items()):
            break
    found = {}
    for name, p in root.items():
        for string, weight in tables[name].items():
            found[string] = found.get(string, 0.0) + p * weight
    return found


def read(text):
    """The rules of a text, by hand: head, items, number."""
    rules, root = [], {}
    for line in text.strip().splitlines():
        head, right = line.split(" -> ")
        *items, p = right.split()
        if head == ROOT:
            root[items[0]] = float(p)
        else:
            rules.append((head, tuple(Word(x.strip("'")) if x[0] == "'" else x for x in items), float(p)))
    return rules, root


def check(grammar, expected, total, longest):
    words = sorted({word for string in expected for word in string})
    strings = [string for n in range(1, longest + 1) for string in itertools.product(words, repeat=n)]
    found = np.exp(list(log_probabilities(grammar, [list(string) for string in strings])))
    np.testing.assert_allclose(found, [expected.get(string, 0.0) / total for string in strings], atol=TIGHT)


def test_without_empty_rules_every_string_keeps_its_probability_but_for_the_empty_one():
    grammar = from_text(EMPTY)
    expected = weights_of_strings(*read(EMPTY), 5)
    check(grammar, expected, 1.0 - expected[()], 5)
    note, = grammar.written.notes
    assert note.startswith("2 rules with nothing on the right are removed")
    assert f"which had {expected[()]:.6g}" in note


@pytest.mark.parametrize("seed", range(12))
def test_empty_rules_of_random_grammars(seed):
    """Unary cycles and symbols that yield nothing alone among them."""
    rng = np.random.default_rng(seed)
    lines = ["ROOT -> A 0.75", "ROOT -> B 0.25"]
    rights = ["", "'1'", "'2'", "B", "A '1'", "B C", "C '2' B", "C C"]
    for head in "ABC":
        chosen = [rights[n] for n in rng.choice(len(rights), size=4, replace=False) if rights[n] != head]
        chosen = list(dict.fromkeys([*chosen, "'1'" if head != "C" or seed % 3 else ""]))
        shares = rng.dirichlet(np.ones(len(chosen))) * 0.5
        shares[-1] += 0.5  # most trees are small
        lines += [f"{head} -> {right} {float(p)!r}" for right, p in zip(chosen, shares, strict=True)]
    text = "\n".join(lines)
    expected = weights_of_strings(*read(text), 4)
    check(from_text(text), expected, 1.0 - expected.get((), 0.0), 4)


WEIGHTS = """
ROOT -> S 3.0
ROOT -> A 1.5
S -> S S 0.25
S -> A B 2.0
S -> A 0.5
A -> '1' 0.5
A -> '2' 0.125
B -> '2' 0.5
"""


def test_weights_are_those_of_trees_over_the_sum_of_all_trees():
    """S = S^2 / 4 + 2 A B + A / 2 has the least solution S = 2 - (4 - 4 (2 A B + A / 2))^(1/2)."""
    a, b = 0.625, 0.5
    s = 2 - 2 * (1 - (2 * a * b + a / 2)) ** 0.5
    total = 3.0 * s + 1.5 * a
    grammar = from_text(WEIGHTS, weights=True)
    check(grammar, weights_of_strings(*read(WEIGHTS), 4), total, 4)
    assert grammar.is_proper
    assert grammar.written.notes == (f"weights are normalised: all trees together weigh {total:.6g}",)


def test_weights_with_empty_rules_are_normalised_first():
    text = EMPTY.replace("0.6", "1.2").replace("B -> 0.1", "B -> 0.4").replace("ROOT -> S 1.0", "ROOT -> S 2.0")
    # All trees together, by their fixed point: B = .7 + .2 A^2 + .4, A = 1, S = 1.2 B + .4 B.
    total = 2.0 * 1.6 * 1.3
    expected = weights_of_strings(*read(text), 5)
    check(from_text(text, weights=True), expected, total - expected[()], 5)


def test_weights_that_have_no_finite_sum_are_refused_by_name(tmp_path, capsys):
    text = "ROOT -> S 1.0\nS -> S S 2.0\nS -> '1' 0.5\n"
    with pytest.raises(GrammarError, match="'S' have no finite sum"):
        from_text(text, weights=True)
    (tmp_path / "rules.txt").write_text(text)
    assert main(["parse", "--weights", "--grammar", str(tmp_path / "rules.txt"), "1 1"]) == 2
    assert "lines 2, 3" in capsys.readouterr().err
    with pytest.raises(GrammarError, match="empty sentence alone"):
        from_text("ROOT -> S 1.0\nS -> 1.0\n")
