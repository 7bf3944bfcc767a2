"""Each kind of claim on hand-made numbers: it holds, it fails, it refuses what is missing or undefined."""

import math

import pytest

from pcfg_artifact.errors import ConfigError
from pcfg_artifact.judge.claims import (
    FAILS,
    HOLDS,
    INAPPLICABLE,
    MISSING,
    UNCONTROLLED,
    UNTRAINED,
    VACUOUS,
    compare,
    evaluate,
    parse_claims,
)
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.metrics.selection import Numbers

WORDS = {"id": "x", "claim": "c", "paper": "Table 1", "says": "s", "scale": "any", "reason": "r"}
LINE = {"table": "t", "model": "a", "layer": "all", "metric": "f1"}


def number(value, **dims):
    return Metric(**{"table": "t", "metric": "f1", **dims}, value=value, n=1, unit="percent")


def trained(**perplexities):
    return [number(value, table="perplexity", model=model, metric="perplexity")
            for model, value in perplexities.items()]


def evaluated(metrics, **fields):
    [claim] = parse_claims([{**WORDS, **fields}])
    return compare(claim, Numbers(metrics), claim.grammars[0])


def outcome(metrics, **fields):
    return evaluated(metrics, **fields).outcome


def line(*values):
    return [number(value, model="a", layer=layer) for layer, value in enumerate(values)]


@pytest.mark.parametrize(("values", "fields", "expected"), [
    ((1, 2, 3), {"kind": "at_most", "cells": LINE, "bound": 3}, HOLDS),
    ((1, 2, 3.1), {"kind": "at_most", "cells": LINE, "bound": 3}, FAILS),
    ((1, math.nan), {"kind": "at_most", "cells": LINE, "bound": 3}, FAILS),
    ((4, 5), {"kind": "at_least", "cells": LINE, "bound": 4}, HOLDS),
    ((4, math.nan), {"kind": "at_least", "cells": LINE, "bound": 4}, FAILS),
    ((4, 5), {"kind": "at_least", "cells": {**LINE, "pick": "min"}, "bound": 4.5}, FAILS),
    ((4, 5), {"kind": "at_least", "cells": {**LINE, "pick": "sum"}, "bound": 9}, HOLDS),
    ((4, 5), {"kind": "at_least", "cells": {**LINE, "layer": [1]}, "bound": 5}, HOLDS),
    ((4, 5), {"kind": "at_least", "cells": {**LINE, "layer": {"from": 1}}, "bound": 5}, HOLDS),
    ((1, 2, 2, 3), {"kind": "monotone", "cells": LINE}, HOLDS),
    ((1, 3, 2), {"kind": "monotone", "cells": LINE}, FAILS),
    ((1, 2, 2, 3), {"kind": "monotone", "cells": LINE, "strict": True}, FAILS),
    ((1, 2, 3), {"kind": "monotone", "cells": LINE, "strict": True}, HOLDS),
    ((1, 3, 2), {"kind": "monotone", "cells": LINE, "slack": 1}, HOLDS),
    ((3, 2, 1), {"kind": "monotone", "cells": LINE, "direction": "falling"}, HOLDS),
    ((1, math.nan, 3), {"kind": "monotone", "cells": LINE}, FAILS),
    ((7,), {"kind": "monotone", "cells": LINE}, MISSING),
    ((1, 9, 2), {"kind": "monotone", "cells": {**LINE, "layer": [0, 2, 1]}}, HOLDS),
    ((100, 102), {"kind": "spread_within", "cells": LINE, "percent": 3}, HOLDS),
    ((100, 104), {"kind": "spread_within", "cells": LINE, "percent": 3}, FAILS),
    ((100, math.nan), {"kind": "spread_within", "cells": LINE, "percent": 3}, FAILS),
    ((100,), {"kind": "spread_within", "cells": LINE, "percent": 3}, INAPPLICABLE),
    ((1, 3, 2, 4), {"kind": "rising_trend", "cells": LINE, "bound": 0.8}, HOLDS),
    ((1, 4, 2, 3), {"kind": "rising_trend", "cells": LINE, "bound": 0.5}, FAILS),
    ((5, 5, 5, 5), {"kind": "rising_trend", "cells": LINE, "bound": 0}, FAILS),
    ((1, math.nan, 4, 5), {"kind": "rising_trend", "cells": LINE, "bound": 0}, FAILS),
    ((1, 2, 3), {"kind": "rising_trend", "cells": LINE, "bound": 0}, INAPPLICABLE),
    ((9, 1, 2, 8), {"kind": "at_most", "cells": {**LINE, "pick": "third_least"}, "bound": 8}, HOLDS),
    ((9, 1, 2, 8), {"kind": "at_most", "cells": {**LINE, "pick": "third_least"}, "bound": 7}, FAILS),
    ((1, 2), {"kind": "at_most", "cells": {**LINE, "pick": "third_least"}, "bound": 7}, FAILS),
    ((9, 1, 2, 8), {"kind": "at_least", "cells": {**LINE, "pick": "second_most"}, "bound": 8.5}, FAILS),
])
def test_kinds_over_one_line(values, fields, expected):
    assert outcome(line(*values), **fields) == expected


@pytest.mark.parametrize(("value", "shown"), [(0.99996, "0.99996"), (1.0, "1.00"), (0.94, "0.94")])
def test_a_number_that_misses_its_bound_does_not_look_like_it(value, shown):
    assert evaluated(line(value), kind="at_least", cells=LINE, bound=1).worst.measured == shown


def test_a_dimension_that_is_not_named_is_blank():
    metrics = [number(9.0, model="a", layer=0, setting="ood"), *line(1.0)]
    assert outcome(metrics, kind="at_most", cells=LINE, bound=1) == HOLDS
    assert outcome(metrics, kind="at_most", cells={**LINE, "setting": "all"}, bound=1) == FAILS


def test_below_compares_every_pair_with_its_margin():
    metrics = [number(1.0, model="a", layer=0), number(2.0, model="a", layer=1),
               number(12.0, model="b", layer=0), number(11.0, model="b", layer=1)]
    both = {"lower": LINE, "upper": {**LINE, "model": "b"}}
    assert outcome(metrics, kind="below", margin=9, **both) == HOLDS
    assert outcome(metrics, kind="below", margin=9.5, **both) == FAILS
    assert outcome(metrics, kind="below", strict=True, **both) == HOLDS
    assert outcome(metrics, kind="below", strict=True, lower=LINE, upper=LINE) == FAILS
    first = {**LINE, "layer": 0}
    assert outcome(metrics, kind="below", lower=first, upper=first) == HOLDS
    by_layer = {side: {**selector, "layer": "$k"} for side, selector in both.items()}
    assert outcome(metrics, kind="below", margin=9, for_each={"k": [0, 1]}, **by_layer) == HOLDS
    assert outcome(metrics, kind="below", margin=-20, lower=both["upper"], upper=both["lower"]) == HOLDS


def test_the_measured_values_are_said_as_an_order():
    metrics = [number(56.65, model="A4L1"), number(56.72, model="A4L3")]
    plain = {"table": "t", "metric": "f1"}
    found = evaluated(metrics, kind="below", lower={**plain, "model": "A4L1"}, upper={**plain, "model": "A4L3"})
    assert found.worst.measured == "A4L1 56.65 < A4L3 56.72"


def test_within_is_two_sided():
    def metrics(a, b):
        return [number(a, model="a"), number(b, model="b")]

    plain = {"table": "t", "metric": "f1"}
    fields = {"kind": "within", "bound": 1, "first": {**plain, "model": "a"}, "second": {**plain, "model": "b"}}
    assert outcome(metrics(5, 6), **fields) == outcome(metrics(6, 5), **fields) == HOLDS
    assert outcome(metrics(5, 6.1), **fields) == outcome(metrics(6.1, 5), **fields) == FAILS
    assert outcome(metrics(5, math.nan), **fields) == FAILS


def test_a_pick_by_a_dimension_gives_one_number_for_each_of_its_values():
    metrics = [number(value, model=model, layer=layer) for model, layer, value in
               (("a", 0, 1.0), ("b", 0, 3.0), ("a", 1, 2.0), ("b", 1, 4.0))]
    mean = {"table": "t", "metric": "f1", "model": "all", "layer": [0, 1], "pick": "mean", "by": "layer"}
    assert outcome(metrics, kind="monotone", cells=mean) == HOLDS
    assert outcome(metrics, kind="monotone", cells={**mean, "layer": [1, 0]}) == FAILS


def test_a_claim_about_several_grammars_is_evaluated_on_each():
    item = {**WORDS, "kind": "at_most", "bound": 1, "grammars": ["vm", "novm"],
            "cells": {"table": "t", "metric": "f1", "grammar": "$grammar"}}
    [claim] = parse_claims([item])
    numbers = Numbers([number(1.0, grammar="vm"), number(2.0, grammar="novm")])
    assert [evaluate(claim, numbers, grammar).outcome for grammar in claim.grammars] == [HOLDS, FAILS]


def test_a_claim_about_deep_models_leaves_out_the_others():
    metrics = trained(A2L1=90.0, A2L6=20.0, A2L8=19.0)
    fields = {"kind": "at_most", "bound": 50, "for_each": {"model": "models"},
              "cells": {"table": "perplexity", "model": "$model", "metric": "perplexity"}}
    assert outcome(metrics, **fields) == FAILS
    assert outcome(metrics, **fields, needs_layers=5) == HOLDS
    assert outcome(metrics, **fields, needs_layers=9) == INAPPLICABLE


def test_alike_is_a_correlation_of_matched_numbers():
    metrics = [number(f(i), model=model, index=i) for model, f in (("a", float), ("b", lambda i: 2.0 * i + 1))
               for i in range(4)]
    fields = {"kind": "alike", "bound": 0.9,
              **{side: {"table": "t", "metric": "f1", "model": model, "index": "all"}
                 for side, model in (("first", "a"), ("second", "b"))}}
    assert outcome(metrics, **fields) == HOLDS
    assert outcome([*metrics[:-1], metrics[-1].at(value=-9.0)], **fields) == FAILS
    assert outcome(metrics[:-1], **fields) == MISSING


def test_a_selector_without_numbers_is_missing_even_when_others_have_some():
    assert outcome(line(1, 2), kind="at_most", cells={**LINE, "model": ["a", "absent"]}, bound=5) == MISSING
    assert outcome([], kind="at_most", cells=LINE, bound=5) == MISSING


def test_roles_are_found_in_the_numbers_and_absent_roles_do_not_apply():
    metrics = trained(A2L1=30.0, A2L2=20.0, A2L4=19.0)
    plain = {"table": "perplexity", "metric": "perplexity"}
    small_is_worst = {"lower": {**plain, "model": "others"}, "upper": {**plain, "model": "small"}}
    assert outcome(metrics, kind="below", **small_is_worst) == HOLDS
    assert outcome(metrics, kind="at_most", bound=19, cells={**plain, "model": "base"}) == HOLDS
    assert outcome(metrics, kind="at_most", bound=50, cells={**plain, "model": "fewest_heads"}) == INAPPLICABLE
    assert outcome(metrics, kind="at_most", bound=50, cells={**plain, "model": "all"}, needs_layers=5) == INAPPLICABLE


def test_the_best_layer_is_chosen_by_its_leading_score_and_other_scores_are_taken_there():
    metrics = [number(value, table="parsing", model="A1L2", layer=layer, probe="linear", convention=convention,
                      metric=metric) for convention, metric, values in
               (("PB", "sentence_f1", (30.0, 60.0, 50.0)), ("KIM", "sentence_f1", (9.0, 5.0, 8.0)))
               for layer, value in enumerate(values)]
    cells = {"table": "parsing", "model": "A1L2", "layer": "best", "probe": "linear", "metric": "sentence_f1"}
    assert evaluated(metrics, kind="at_least", bound=0, cells={**cells, "convention": "PB"}).worst.value == 60.0
    assert evaluated(metrics, kind="at_least", bound=0, cells={**cells, "convention": "KIM"}).worst.value == 5.0


@pytest.mark.parametrize(("change", "message"), [
    ({"kind": "python"}, "unknown kind 'python'"),
    ({"bound": None}, "bound is None, expected a number"),
    ({"bound": math.nan}, "expected a number"),
    ({"extra": 1}, "unknown keys"),
    ({"scale": "smoke"}, "expected any or paper"),
    ({"central": True, "at_paper": "holds: why"}, "expected the place in the paper"),
    ({"says": ""}, "says is missing"),
    ({"cells": {"table": "t"}}, "must name a table and a metric"),
    ({"cells": {**LINE, "row": "r"}}, "'row' is no dimension"),
    ({"cells": {**LINE, "layer": "deepest"}}, "expected a whole number, a range, or one of"),
    ({"cells": {**LINE, "pick": "median"}}, "unknown pick 'median'"),
    ({"cells": {**LINE, "by": "layer"}}, "expected a dimension, beside a pick"),
    ({"source": "us"}, "so it has no place in the paper"),
])
def test_what_is_not_a_claim_is_refused_by_name(change, message):
    with pytest.raises(ConfigError, match=message):
        parse_claims([{**WORDS, "kind": "at_most", "cells": LINE, "bound": 1, **change}])


def test_an_unknown_variable_and_a_repeated_id_are_refused():
    with pytest.raises(ConfigError, match="is no variable"):
        outcome(line(1), kind="at_most", bound=1, cells={**LINE, "model": "$nobody"})
    item = {**WORDS, "kind": "at_most", "cells": LINE, "bound": 1}
    with pytest.raises(ConfigError, match="occurs twice"):
        parse_claims([item, item])


# ---- what a relation that holds shows --------------------------------------------------------------------------------

BEST_ABOVE_FIRST = {"kind": "below", "strict": True,
                    "lower": {"table": "parsing", "model": "base", "layer": 0, "metric": "f1"},
                    "upper": {"table": "parsing", "model": "base", "layer": 1, "metric": "f1"}}


def layers(model, first, second):
    return [number(value, table="parsing", model=model, layer=layer) for layer, value in enumerate((first, second))]


def shown(metrics, **fields):
    [claim] = parse_claims([{**WORDS, **fields}])
    return evaluate(claim, Numbers(metrics)).outcome


@pytest.mark.parametrize(("controls", "expected"), [
    ({}, UNCONTROLLED),
    ({"random": (20, 20)}, HOLDS),
    ({"random": (20, 21)}, UNTRAINED),
    ({"random": (20, 20), "shuffled": (20, 19), "bigram": (20, 25)}, UNTRAINED),
    ({"random": (20, 20), "shuffled": (20, 19), "bigram": (20, 20)}, HOLDS),
])
def test_a_finding_is_shown_only_if_every_measured_control_fails_it(controls, expected):
    metrics = [*trained(A2L1=30.0), *layers("A2L1", 20, 40),
               *(m for name, values in controls.items() for m in layers(f"A2L1-{name}", *values))]
    assert shown(metrics, **BEST_ABOVE_FIRST) == expected
    assert shown(metrics, **BEST_ABOVE_FIRST, check=True) == HOLDS  # a sanity check needs no control
    assert shown([m for m in metrics if m.table == "perplexity"], **BEST_ABOVE_FIRST) == MISSING


def test_a_baseline_stays_that_of_the_trained_model_and_a_control_that_is_named_stays_itself():
    metrics = [*trained(A2L1=30.0), *layers("A2L1", 20, 40), *layers("A2L1-random", 10, 15)]
    assert shown(metrics, **BEST_ABOVE_FIRST) == UNTRAINED
    with_baseline = {**BEST_ABOVE_FIRST, "lower": {**BEST_ABOVE_FIRST["lower"], "baseline": True}}
    assert shown(metrics, **with_baseline) == HOLDS  # 15 is not above 20
    above_untrained = {**BEST_ABOVE_FIRST, "lower": {**BEST_ABOVE_FIRST["upper"], "model": {"untrained": "base"}}}
    assert shown(metrics, **above_untrained) == HOLDS  # the control is not above itself
    above_bigram = {**BEST_ABOVE_FIRST, "lower": {**BEST_ABOVE_FIRST["upper"], "model": {"bigram": "base"}}}
    assert shown(metrics, **above_bigram) == INAPPLICABLE


def test_a_claim_that_compares_sizes_which_have_no_control_stands_without_one():
    metrics = [*trained(A2L1=30.0, A2L2=20.0), *layers("A2L1", 20, 30), *layers("A2L2", 20, 40),
               *layers("A2L2-random", 10, 15)]
    score = {"table": "parsing", "layer": 1, "metric": "f1"}
    sizes = {"kind": "below", "lower": {**score, "model": "small"}, "upper": {**score, "model": "others"}}
    assert shown(metrics, **sizes) == HOLDS


def test_what_holds_because_most_sentences_were_not_parsed_is_vacuous():
    dims = {"table": "approximation", "model": "few", "size": 10}
    fields = {"kind": "at_most", "bound": 5, "cells": {**dims, "metric": "f1"}}
    for failed, expected in ((0.5, HOLDS), (0.6, VACUOUS)):
        assert shown([number(1.0, **dims), number(failed, **dims, metric="failed")], **fields) == expected
    assert shown([number(9.0, **dims), number(1.0, **dims, metric="failed")], **fields) == FAILS


def test_a_share_of_a_gain_is_undefined_without_a_gain():
    fields = {"kind": "share_of_gain", "bound": 0.6, **{name: {**LINE, "layer": layer} for name, layer in
                                                        (("start", 0), ("part", 1), ("whole", 2))}}
    assert outcome(line(40, 60, 70), **fields) == HOLDS  # two thirds
    assert outcome(line(40, 55, 70), **fields) == FAILS
    assert outcome(line(40, 40, 40), **fields) == FAILS


def test_layers_are_used_where_uniform_attention_costs_a_point():
    metrics = [*trained(A2L2=20.0), *line(1, 2, 3)]
    metrics = [m.at(model="A2L2") if m.table == "t" else m for m in metrics]
    fields = {"kind": "at_most", "bound": 2, "cells": {**LINE, "model": "base", "layer": "used"}}
    assert outcome(metrics, **fields) == MISSING
    used = [number(value, table="layers_used", model="A2L2", layer=layer, group="uniform attention",
                   metric="share_lost") for layer, value in ((1, 1.0), (2, 0.9))]
    assert outcome([*metrics, *used], **fields) == HOLDS


def test_a_central_claim_says_beforehand_how_it_will_come_out_at_the_papers_scale():
    item = {**WORDS, "kind": "at_most", "cells": LINE, "bound": 1, "central": "abstract: so"}
    for at_paper in ("", "perhaps: why"):
        with pytest.raises(ConfigError, match="in at_paper how it will come out"):
            parse_claims([{**item, "at_paper": at_paper}])
    [claim] = parse_claims([{**item, "at_paper": "fails: too few symbols"}])
    assert claim.at_paper == "fails: too few symbols"
