"""Inside-Outside and what is read from it: trees, scores, masked words."""

from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.decoding import best_binary_tree, labelled_recall
from pcfg_artifact.parsing.engine import inside_outside, leaf_charts
from pcfg_artifact.parsing.leaves import sentence_leaves
from pcfg_artifact.parsing.masking import masked_word_distribution
from pcfg_artifact.parsing.scoring import CONVENTIONS, SpanF1, span_f1

__all__ = ["CONVENTIONS", "Chart", "SpanF1", "best_binary_tree", "inside_outside", "labelled_recall", "leaf_charts",
           "masked_word_distribution", "sentence_leaves", "span_f1"]
