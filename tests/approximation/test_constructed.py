"""The transformer for few non-terminals and low rank against the approximate algorithm, with learned transforms."""

import numpy as np
import pytest

from pcfg_artifact.approximation.low_rank import approximate_charts
from pcfg_artifact.approximation.restriction import select_symbols
from pcfg_artifact.approximation.transforms import Correlations
from pcfg_artifact.constructions.approximate_relative import ApproximateInsideOutside
from pcfg_artifact.parsing.engine import inside_outside

NORMWISE = 1e-9  # cancellation in W+ W, relative to the largest entry of the span


@pytest.mark.parametrize(("rank", "rule"), [(None, "clip"), (2, "clip"), (2, "literal"), (3, "signed")])
def test_constructed_transformer_equals_the_approximate_algorithm(random_grammar, rank, rule):
    grammar = random_grammar(11)
    interminals, preterminals = select_symbols(grammar, 4, 3)
    rng = np.random.default_rng(11)
    sentences = [rng.choice(grammar.words, length).tolist() for length in (2, 3, 5, 6)]
    correlations = Correlations(interminals, 6)
    for chart in inside_outside(grammar, sentences):
        correlations.add(chart)
    transforms = None if rank is None else correlations.transforms(rank)
    model = ApproximateInsideOutside(grammar, 6, 4, 3, rank, rule, transforms)
    for sentence in sentences:
        expected = approximate_charts(grammar, sentence, interminals, preterminals, transforms, rule)
        found = model.read_charts(model(sentence))
        # The transformer keeps the words' probabilities only for pre-terminals that its in-terminals can produce.
        for mine, theirs in zip(expected, found, strict=True):
            kept = theirs.any(axis=(0, 1))
            scale = np.abs(mine).max(axis=-1)
            error = np.abs(theirs - mine)[..., kept].max(axis=-1)
            assert (error <= NORMWISE * np.where(scale > 0, scale, 1.0)).all()
        np.testing.assert_array_equal(expected[0][..., interminals].any(axis=(0, 1)),
                                      found[0][..., interminals].any(axis=(0, 1)))
