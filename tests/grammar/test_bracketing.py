"""Rules to text at once, against the slow way: build the tree, undo the binarisation, print."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.tools.export import Bracketing
from pcfg_artifact.treebank.binarise import unbinarise
from pcfg_artifact.treebank.brackets import parse_trees

# Unary chains over words and over phrases, at the root too, and nodes of one to five children.
LINES = ["(S (NP (DT the) (JJ old) (NN cat)) (VP (VBD saw) (NP (NP (NN fish))) (PP (IN at) (NP (NN sea)))) (. .))",
         "(ROOT (S (VP (VB run) (ADVP (RB now)))))", "(S (NP (PRP she)) (VP (VBZ runs)))", "(NP (NP (NN fish)))",
         "(S (A a) (B b) (A a) (B b) (C (-LRB- -LRB-)))"]


@pytest.mark.parametrize("variant", ["vm", "novm"])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_text_is_that_of_the_unbinarised_tree(variant, seed):
    grammar = learn_pcfg(parse_trees("\n".join(LINES), "lines")[0], variant, cutoff=0)
    sampled = sample_trees(grammar, 20, seed, max_length=40)
    bracketed = Bracketing(grammar)
    assert [bracketed(rules) for rules in sampled.rules.rows()] == [str(unbinarise(tree)) for tree in sampled]
