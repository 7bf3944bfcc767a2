"""Inside-Outside and what is read from it: trees, scores, masked words."""

from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.decoding import Parse, best_binary_tree, labelled_recall, parses, viterbi
from pcfg_artifact.parsing.engine import each_chart, inside_outside, leaf_charts
from pcfg_artifact.parsing.leaves import sentence_leaves
from pcfg_artifact.parsing.masking import (
    masked_log_probs,
    masked_word_distribution,
    one_mask_distributions,
    one_mask_log_probs,
    perplexity,
)
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.parsing.prefix import NextWords, Prefix, SpanPosteriors, incremental_posteriors, next_words
from pcfg_artifact.parsing.scoring import CONVENTIONS, SpanF1, span_f1

__all__ = ["CONVENTIONS", "Chart", "Masking", "NextWords", "Parse", "Prefix", "SpanF1", "SpanPosteriors",
           "best_binary_tree", "each_chart", "incremental_posteriors", "inside_outside", "labelled_recall",
           "leaf_charts", "masked_log_probs", "masked_word_distribution", "next_words", "one_mask_distributions",
           "one_mask_log_probs", "parses", "perplexity", "sentence_leaves", "span_f1", "viterbi"]
