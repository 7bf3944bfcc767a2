"""Six trees and the grammar learned from them: every sentence is short, and every symbol occurs."""

from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.treebank.brackets import parse_trees

TREES = parse_trees("""
(S (NP (D the) (N dog)) (VP (V sees) (NP (D a) (N park))) (. .))
(S (NP (NP (D the) (N dog)) (PP (P in) (NP (D the) (N park)))) (VP (V sees) (NP (D the) (N cat))) (. .))
(S (NP (D a) (J small) (N dog)) (VP (VP (V sleeps) (ADVP (A now))) (C and) (VP (V sees) (NP (N cats)))))
(S (NP (N cats)) (VP (V sleep) (PP (P in) (NP (D a) (J small) (J old) (N park)))) (. .))
(SINV (VP (V sleeps) (ADVP (A now))) (NP (D the) (N cat)))
(FRAG (N park))
""", "trees")[0]
GRAMMAR = learn_pcfg(TREES, "novm", cutoff=1)
