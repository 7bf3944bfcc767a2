"""Exact counterfactuals against the law of total probability, and in the transformer whose coordinates are known."""

import numpy as np
import pytest
import torch

from pcfg_artifact.constructions.agreement import entry_errors, linear
from pcfg_artifact.constructions.relative import RelativeInsideOutside
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.interventions.constructed import cleared_embeddings, observe_constructed
from pcfg_artifact.interventions.counterfactuals import (
    MARGIN,
    answer_questions,
    constituent_probabilities,
    log_ratio,
    masked_charts,
    masked_leaves,
    spans_in_question,
)
from pcfg_artifact.mlm.exact_comparison import MaskedSentence
from pcfg_artifact.parsing.constraints import forbidden_entries
from pcfg_artifact.parsing.engine import EngineOptions, inside_outside, leaf_charts
from pcfg_artifact.parsing.masking import hidden_words, masked_word_distribution
from pcfg_artifact.parsing.masks import Masking

GRAMMAR = PCFG.from_rules(
    root={"S": 1.0},
    binary=[("S", "NP", "VP", 1.0), ("VP", "V", "NP", 0.5), ("VP", "VP", "PP", 0.3), ("VP", "V", "V", 0.2),
            ("PP", "P", "NP", 1.0), ("NP", "D", "N", 0.5), ("NP", "NP", "PP", 0.3), ("NP", "N", "N", 0.2)],
    lexical=[("V", "saw", 0.6), ("V", "dog", 0.4), ("P", "with", 0.7), ("P", "in", 0.3), ("D", "the", 0.6),
             ("D", "a", 0.4), ("N", "dog", 0.4), ("N", "saw", 0.3), ("N", "park", 0.3)])


@pytest.fixture(scope="module")
def sentences():
    drawn = [tree.words() for tree in sample_trees(GRAMMAR, 60, seed=3, max_length=9)]
    found = [MaskedSentence(s, *hidden_words(GRAMMAR, words, Masking(0.3, "mask"), 0, s))
             for s, words in enumerate(drawn)]
    return [one for one in found if len(one.positions) and len(one.words) > 3]


@pytest.fixture(scope="module")
def asked(sentences):
    marginals = [constituent_probabilities(chart) for chart in masked_charts(GRAMMAR, sentences)]
    spans = [found for width in (2, 3, 4) for found in spans_in_question(marginals, width, 12, 0)]
    assert len(spans) >= 10
    return answer_questions(GRAMMAR, sentences, spans)


def test_what_is_known_of_the_span_mixes_to_what_is_known_without(sentences, asked):
    """P(w) = P(span) P(w | span) + P(no span) P(w | no span), and their log ratio is the change."""
    for question in asked:
        assert MARGIN <= question.marginal <= 1 - MARGIN
        one = sentences[question.sentence]
        words = [GRAMMAR.words[w] for w in one.words]
        inside, without = (masked_word_distribution(GRAMMAR, words, one.positions, constraints={question.span: wanted})
                           for wanted in (True, False))
        mixed = question.marginal * inside + (1 - question.marginal) * without
        np.testing.assert_allclose(mixed, question.weights, atol=1e-12)
        np.testing.assert_allclose(question.change, log_ratio(inside, without), atol=1e-9)


def test_the_probability_of_a_span_sums_its_labels(sentences):
    chart = inside_outside(GRAMMAR, [["the", "dog", "saw", "a", "park"]])[0]
    np.testing.assert_allclose(constituent_probabilities(chart), chart.marginals.sum(axis=-1), atol=1e-15)


def test_cleared_coordinates_give_slope_1_and_the_constrained_charts(sentences, asked):
    model = RelativeInsideOutside(GRAMMAR, 9)
    seen, worst = observe_constructed(model, sentences, asked)
    assert worst < 1e-9
    check_the_effect(seen)


@pytest.mark.parametrize("constraints", [{(0, 2): True, (3, 6): False}, {(1, 4): False, (2, 5): False},
                                         {(0, 3): True, (2, 5): True}])
def test_several_constraints_at_once_and_contradictory_ones(sentences, constraints):
    one = next(s for s in sentences if len(s.words) >= 7)
    model, leaves = RelativeInsideOutside(GRAMMAR, 9), masked_leaves(GRAMMAR, one)
    found = model.read_charts(cleared_embeddings(model, leaves, constraints))
    chart = next(leaf_charts(GRAMMAR, [leaves], EngineOptions(outside="full"),
                             [forbidden_entries(GRAMMAR, len(leaves), constraints)]))
    for values, expected in zip(found, linear(chart), strict=True):
        assert entry_errors(values, expected).max() < 1e-9


def test_clearing_the_first_pass_alone_is_not_enough(sentences, asked, monkeypatch):
    """A control of the control: what is below a forbidden span would still hear of it from the outside."""
    from pcfg_artifact.interventions import constructed

    whole = constructed._clear
    monkeypatch.setattr(constructed, "_clear", lambda model, e, spans, has_outside: whole(model, e, spans, False))
    _, worst = observe_constructed(RelativeInsideOutside(GRAMMAR, 9), sentences, asked)
    assert worst > 1e-3


def test_embeddings_without_constraints_are_the_models_own(sentences):
    model, leaves = RelativeInsideOutside(GRAMMAR, 9), masked_leaves(GRAMMAR, sentences[0])
    *_, last = model.steps_from_leaves([torch.from_numpy(leaves)])
    assert torch.equal(cleared_embeddings(model, leaves, {}), last[0])


@pytest.mark.craft
def test_the_positive_control_at_the_scale_of_craft(craft_grammar):
    """Hundreds of symbols, sampled sentences: slope 1, all signs, charts within 1e-9."""
    drawn = [tree.words() for tree in sample_trees(craft_grammar, 150, seed=0, max_length=9) if len(tree.words()) > 5]
    found = [MaskedSentence(s, *hidden_words(craft_grammar, words, Masking(0.15, "mask"), 0, s))
             for s, words in enumerate(drawn)]
    masked = [one for one in found if len(one.positions)]
    marginals = [constituent_probabilities(chart) for chart in masked_charts(craft_grammar, masked)]
    spans = [found for width in (2, 3, 5) for found in spans_in_question(marginals, width, 2, 0)]
    assert len(spans) >= 4
    seen, worst = observe_constructed(RelativeInsideOutside(craft_grammar, 9), masked,
                                      answer_questions(craft_grammar, masked, spans))
    assert worst < 1e-9
    check_the_effect(seen)


def check_the_effect(seen):
    found = {one.metric: one.value for one in seen.estimates(np.ones(len(seen.sentence), bool))}
    assert abs(found["slope"] - 1) < 1e-6
    assert found["agreeing_signs"] == 1.0
