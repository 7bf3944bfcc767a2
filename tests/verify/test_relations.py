"""Each kind of relation on hand-made cells: it holds, it fails, it refuses what is missing or undefined."""

import math

import pytest

from pcfg_artifact.cells import Cell
from pcfg_artifact.errors import ConfigError
from pcfg_artifact.roles import find_roles
from pcfg_artifact.verification.claim_outcomes import FAILS, HOLDS, INAPPLICABLE, MISSING, evaluate
from pcfg_artifact.verification.measured import Value, tabulate
from pcfg_artifact.verification.relations import parse_relations

WORDS = {"id": "x", "claim": "c", "paper": "Table 1", "says": "s", "scale": "any", "reason": "r"}


def cells(*triples):
    return {Cell(table, row, column): Value(number, "percent") for table, row, column, number in triples}


def outcome(measured, **fields):
    [relation] = parse_relations([{**WORDS, **fields}])
    return evaluate(relation, tabulate(measured), find_roles(measured)).outcome


def row(*numbers):
    return cells(*(("t", "r", f"L{i}", number) for i, number in enumerate(numbers)))


LINE = {"table": "t", "row": "r", "column": "L*"}


@pytest.mark.parametrize(("numbers", "fields", "expected"), [
    ((1, 2, 3), {"kind": "at_most", "cells": LINE, "bound": 3}, HOLDS),
    ((1, 2, 3.1), {"kind": "at_most", "cells": LINE, "bound": 3}, FAILS),
    ((1, math.nan), {"kind": "at_most", "cells": LINE, "bound": 3}, FAILS),
    ((4, 5), {"kind": "at_least", "cells": LINE, "bound": 4}, HOLDS),
    ((4, math.nan), {"kind": "at_least", "cells": LINE, "bound": 4}, FAILS),
    ((4, 5), {"kind": "at_least", "cells": {**LINE, "pick": "min"}, "bound": 4.5}, FAILS),
    ((4, 5), {"kind": "at_least", "cells": {**LINE, "pick": "sum"}, "bound": 9}, HOLDS),
    ((1, 2, 2, 3), {"kind": "monotone", "cells": LINE}, HOLDS),
    ((1, 3, 2), {"kind": "monotone", "cells": LINE}, FAILS),
    ((1, 2, 2, 3), {"kind": "monotone", "cells": LINE, "strict": True}, FAILS),
    ((1, 2, 3), {"kind": "monotone", "cells": LINE, "strict": True}, HOLDS),
    ((1, 3, 2), {"kind": "monotone", "cells": LINE, "slack": 1}, HOLDS),
    ((3, 2, 1), {"kind": "monotone", "cells": LINE, "direction": "falling"}, HOLDS),
    ((1, math.nan, 3), {"kind": "monotone", "cells": LINE}, FAILS),
    ((7,), {"kind": "monotone", "cells": LINE}, MISSING),
    ((100, 102), {"kind": "spread_within", "cells": LINE, "percent": 3}, HOLDS),
    ((100, 104), {"kind": "spread_within", "cells": LINE, "percent": 3}, FAILS),
    ((100, math.nan), {"kind": "spread_within", "cells": LINE, "percent": 3}, FAILS),
    ((100,), {"kind": "spread_within", "cells": LINE, "percent": 3}, INAPPLICABLE),
    ((1, 3, 2, 4), {"kind": "rising_trend", "cells": LINE, "bound": 0.8}, HOLDS),
    ((1, 4, 2, 3), {"kind": "rising_trend", "cells": LINE, "bound": 0.5}, FAILS),
    ((5, 5, 5), {"kind": "rising_trend", "cells": LINE, "bound": 0}, FAILS),
    ((1, math.nan, 4), {"kind": "rising_trend", "cells": LINE, "bound": 0}, FAILS),
    ((9, 1, 2, 8), {"kind": "at_most", "cells": {**LINE, "pick": "third_least"}, "bound": 8}, HOLDS),
    ((9, 1, 2, 8), {"kind": "at_most", "cells": {**LINE, "pick": "third_least"}, "bound": 7}, FAILS),
    ((1, 2), {"kind": "at_most", "cells": {**LINE, "pick": "third_least"}, "bound": 7}, FAILS),
    ((9, 1, 2, 8), {"kind": "at_least", "cells": {**LINE, "pick": "second_most"}, "bound": 8.5}, FAILS),
])
def test_kinds_over_one_row(numbers, fields, expected):
    assert outcome(row(*numbers), **fields) == expected


@pytest.mark.parametrize(("number", "shown"), [(0.99996, "0.99996"), (1.0, "1.00"), (0.94, "0.94")])
def test_a_number_that_misses_its_bound_does_not_look_like_it(number, shown):
    [relation] = parse_relations([{**WORDS, "kind": "at_least", "cells": LINE, "bound": 1}])
    measured = row(number)
    assert evaluate(relation, tabulate(measured), find_roles(measured)).measured == shown


def test_natural_order_puts_layer_ten_after_layer_two():
    assert outcome(row(*range(12)), kind="monotone", cells=LINE) == HOLDS
    assert outcome(row(*range(12)), kind="at_least", cells={**LINE, "pick": "last"}, bound=11) == HOLDS


def test_below_compares_every_pair_with_its_margin():
    measured = cells(("t", "a", "x", 1.0), ("t", "a", "y", 2.0), ("t", "b", "x", 12.0), ("t", "b", "y", 11.0))
    both = {"lower": {"table": "t", "row": "a", "column": "*"}, "upper": {"table": "t", "row": "b", "column": "*"}}
    assert outcome(measured, kind="below", margin=9, **both) == HOLDS
    assert outcome(measured, kind="below", margin=9.5, **both) == FAILS
    assert outcome(measured, kind="below", strict=True, **both) == HOLDS
    assert outcome(measured, kind="below", strict=True, lower=both["lower"], upper=both["lower"]) == FAILS
    assert outcome(measured, kind="below", lower={**both["lower"], "column": "x"},
                   upper={**both["lower"], "column": "x"}) == HOLDS
    per_column = {side: {**selector, "column": "{c}"} for side, selector in both.items()}
    assert outcome(measured, kind="below", margin=9, for_each={"c": ["x", "y"]}, **per_column) == HOLDS
    assert outcome(measured, kind="below", margin=-20, lower=both["upper"], upper=both["lower"]) == HOLDS


def test_within_is_two_sided():
    def measured(a, b):
        return cells(("t", "a", "x", a), ("t", "b", "x", b))

    fields = {"kind": "within", "bound": 1, "first": {"table": "t", "row": "a", "column": "x"},
              "second": {"table": "t", "row": "b", "column": "x"}}
    assert outcome(measured(5, 6), **fields) == outcome(measured(6, 5), **fields) == HOLDS
    assert outcome(measured(5, 6.1), **fields) == outcome(measured(6.1, 5), **fields) == FAILS
    assert outcome(measured(5, math.nan), **fields) == FAILS


def test_a_pick_by_column_gives_one_number_a_column():
    measured = cells(("t", "a", "x", 1.0), ("t", "b", "x", 3.0), ("t", "a", "y", 2.0), ("t", "b", "y", 4.0))
    mean = {"table": "t", "row": "*", "column": ["x", "y"], "pick": "mean", "by": "column"}
    assert outcome(measured, kind="monotone", cells=mean) == HOLDS
    assert outcome(measured, kind="monotone", cells={**mean, "column": ["y", "x"]}) == FAILS


def test_a_claim_about_both_grammars_becomes_two_with_tables_of_their_own():
    item = {**WORDS, "kind": "below", "variants": "both", "lower": {"table": "marginals", "row": "r", "column": "x"},
            "upper": [{"table": "t", "row": "r", "column": "x"}, {"table": "f", "row": "r", "column": "vm"}]}
    first, second = parse_relations([item])
    assert (first.id, second.id) == ("x", "x-novm")
    assert [s.table for s in second.selectors["upper"]] == ["t_novm", "f"]
    assert second.selectors["upper"][1].columns == ("novm",)
    assert second.selectors["lower"][0].table == "marginals"  # baselines know no grammar
    with pytest.raises(ConfigError, match="expected both"):
        parse_relations([{**item, "variants": "all"}])


def test_a_claim_about_deep_models_leaves_out_the_others():
    measured = cells(*(("table3", model, "validation_perplexity", p) for model, p in
                       (("A2L1", 90.0), ("A2L6", 20.0), ("A2L8", 19.0))))
    fields = {"kind": "at_most", "bound": 50, "for_each": {"model": "models"},
              "cells": {"table": "table3", "row": "{model}", "column": "*"}}
    assert outcome(measured, **fields) == FAILS
    assert outcome(measured, **fields, needs_layers=5) == HOLDS
    assert outcome(measured, **fields, needs_layers=9) == INAPPLICABLE


def test_alike_is_a_correlation_of_matched_cells():
    measured = cells(*(("t", "a", f"h{i}", i) for i in range(4)), *(("t", "b", f"h{i}", 2 * i + 1) for i in range(4)))
    fields = {"kind": "alike", "bound": 0.9, "first": {"table": "t", "row": "a", "column": "*"},
              "second": {"table": "t", "row": "b", "column": "*"}}
    assert outcome(measured, **fields) == HOLDS
    assert outcome({**measured, Cell("t", "b", "h3"): Value(-9.0, "percent")}, **fields) == FAILS
    assert outcome({c: v for c, v in measured.items() if c != Cell("t", "b", "h3")}, **fields) == MISSING


def test_a_selector_without_cells_is_missing_even_when_others_have_some():
    some = {"table": "t", "row": ["r", "absent"], "column": "L*"}
    assert outcome(row(1, 2), kind="at_most", cells=some, bound=5) == MISSING
    assert outcome({}, kind="at_most", cells=LINE, bound=5) == MISSING
    assert outcome(row(1, 2), kind="at_most", cells={**LINE, "row": "{base}"}, bound=5) == MISSING


def test_roles_are_resolved_from_the_rows_and_absent_roles_do_not_apply():
    measured = cells(*(("table3", model, "validation_perplexity", p) for model, p in
                       (("A2L1", 30.0), ("A2L2", 20.0), ("A2L4", 19.0))))
    roles = find_roles(measured)
    assert (roles.base, roles.fewest_layers, roles.fewest_heads) == ("A2L4", "A2L1", None)
    worst = {"kind": "below", "lower": {"table": "table3", "row": "{others}", "column": "*"},
             "upper": {"table": "table3", "row": "{small}", "column": "*"}}
    assert outcome(measured, **worst) == HOLDS
    narrow = {"kind": "at_most", "bound": 50, "cells": {"table": "table3", "row": "{fewest_heads}", "column": "*"}}
    assert outcome(measured, **narrow) == INAPPLICABLE
    deep = {"kind": "at_most", "bound": 50, "needs_layers": 5, "cells": {"table": "table3", "row": "*", "column": "*"}}
    assert outcome(measured, **deep) == INAPPLICABLE


@pytest.mark.parametrize(("change", "message"), [
    ({"kind": "python"}, "unknown kind 'python'"),
    ({"bound": None}, "bound is None, expected a number"),
    ({"bound": math.nan}, "expected a number"),
    ({"extra": 1}, "unknown keys"),
    ({"scale": "smoke"}, "expected any or paper"),
    ({"central": "very"}, "central is 'very', expected true or false"),
    ({"says": ""}, "says is missing"),
    ({"cells": {"table": "t", "row": "r"}}, "must have table, row, column"),
    ({"cells": {**LINE, "pick": "median"}}, "unknown pick 'median'"),
    ({"cells": {**LINE, "by": "row"}}, "expected row or column, beside a pick"),
])
def test_what_is_not_a_relation_is_refused_by_name(change, message):
    with pytest.raises(ConfigError, match=message):
        parse_relations([{**WORDS, "kind": "at_most", "cells": LINE, "bound": 1, **change}])


def test_an_unknown_variable_and_a_repeated_id_are_refused():
    with pytest.raises(ConfigError, match="neither a variable nor a role"):
        outcome({**row(1), **cells(("table3", "A1L1", "p", 1.0))}, kind="at_most", bound=1,
                cells={**LINE, "row": "{nobody}"})
    item = {**WORDS, "kind": "at_most", "cells": LINE, "bound": 1}
    with pytest.raises(ConfigError, match="occurs twice"):
        parse_relations([item, item])


def test_an_attribute_of_an_object_cannot_be_reached_through_a_pattern():
    measured = {**row(1), **cells(("table3", "A1L1", "p", 1.0))}
    for pattern in ("{base.__class__}", "{roles[0]}", "{0}"):
        with pytest.raises(ConfigError, match="neither a variable nor a role"):
            outcome(measured, kind="at_most", bound=1, cells={**LINE, "row": pattern})
