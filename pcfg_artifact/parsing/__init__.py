"""Inside-Outside and what is read from it: trees, scores, masked words."""

from typing import TYPE_CHECKING

from pcfg_artifact.lazy import lazy_exports

if TYPE_CHECKING:
    from pcfg_artifact.parsing.baselines import BASELINES
    from pcfg_artifact.parsing.charts import Chart, SpanChart
    from pcfg_artifact.parsing.constraints import Constraints
    from pcfg_artifact.parsing.decoding import (
        Parse,
        best_binary_tree,
        labelled_recall,
        parses,
        viterbi,
        viterbi_trees,
        with_retries,
    )
    from pcfg_artifact.parsing.engine import LazyLeaves, each_chart, inside_outside, leaf_charts, log_probabilities
    from pcfg_artifact.parsing.fitting import em_step, normalised
    from pcfg_artifact.parsing.gradients import RuleCounts, RuleWeights, WeightedChart, leaf_weights, log_weights
    from pcfg_artifact.parsing.labelling import labelled_tree
    from pcfg_artifact.parsing.latent_engine import LatentChart, latent_inside_outside, latent_parses
    from pcfg_artifact.parsing.leaves import Sentence, emissions, sentence_leaves, word_ids
    from pcfg_artifact.parsing.masking import (
        masked_log_probs,
        masked_word_distribution,
        one_mask_distributions,
        one_mask_log_probs,
        perplexity,
        preterminal_outside,
        word_distributions,
    )
    from pcfg_artifact.parsing.masks import NAMED_MASKS, Masking
    from pcfg_artifact.parsing.options import EngineOptions
    from pcfg_artifact.parsing.prefix import NextWords, Prefix, SpanPosteriors, incremental_posteriors, next_words
    from pcfg_artifact.parsing.registry import ENGINES, BestTree, Engine
    from pcfg_artifact.parsing.scoring import CONVENTIONS, SpanF1, gold_spans, span_f1
    from pcfg_artifact.parsing.triangle import cell_bounds

# Public name -> the module it comes from; a test compares this table with the imports above.
MODULE_OF = {
    "BASELINES": "baselines",
    "CONVENTIONS": "scoring",
    "ENGINES": "registry",
    "NAMED_MASKS": "masks",
    "BestTree": "registry",
    "Chart": "charts",
    "Constraints": "constraints",
    "Engine": "registry",
    "EngineOptions": "options",
    "LatentChart": "latent_engine",
    "LazyLeaves": "engine",
    "Masking": "masks",
    "NextWords": "prefix",
    "Parse": "decoding",
    "Prefix": "prefix",
    "RuleCounts": "gradients",
    "RuleWeights": "gradients",
    "Sentence": "leaves",
    "SpanChart": "charts",
    "SpanF1": "scoring",
    "SpanPosteriors": "prefix",
    "WeightedChart": "gradients",
    "best_binary_tree": "decoding",
    "cell_bounds": "triangle",
    "each_chart": "engine",
    "em_step": "fitting",
    "emissions": "leaves",
    "gold_spans": "scoring",
    "incremental_posteriors": "prefix",
    "inside_outside": "engine",
    "labelled_recall": "decoding",
    "labelled_tree": "labelling",
    "latent_inside_outside": "latent_engine",
    "latent_parses": "latent_engine",
    "leaf_charts": "engine",
    "leaf_weights": "gradients",
    "log_probabilities": "engine",
    "log_weights": "gradients",
    "masked_log_probs": "masking",
    "masked_word_distribution": "masking",
    "next_words": "prefix",
    "normalised": "fitting",
    "one_mask_distributions": "masking",
    "one_mask_log_probs": "masking",
    "parses": "decoding",
    "perplexity": "masking",
    "preterminal_outside": "masking",
    "sentence_leaves": "leaves",
    "span_f1": "scoring",
    "viterbi": "decoding",
    "viterbi_trees": "decoding",
    "with_retries": "decoding",
    "word_distributions": "masking",
    "word_ids": "leaves",
}

__all__ = [
    "BASELINES",
    "CONVENTIONS",
    "ENGINES",
    "NAMED_MASKS",
    "BestTree",
    "Chart",
    "Constraints",
    "Engine",
    "EngineOptions",
    "LatentChart",
    "LazyLeaves",
    "Masking",
    "NextWords",
    "Parse",
    "Prefix",
    "RuleCounts",
    "RuleWeights",
    "Sentence",
    "SpanChart",
    "SpanF1",
    "SpanPosteriors",
    "WeightedChart",
    "best_binary_tree",
    "cell_bounds",
    "each_chart",
    "em_step",
    "emissions",
    "gold_spans",
    "incremental_posteriors",
    "inside_outside",
    "labelled_recall",
    "labelled_tree",
    "latent_inside_outside",
    "latent_parses",
    "leaf_charts",
    "leaf_weights",
    "log_probabilities",
    "log_weights",
    "masked_log_probs",
    "masked_word_distribution",
    "next_words",
    "normalised",
    "one_mask_distributions",
    "one_mask_log_probs",
    "parses",
    "perplexity",
    "preterminal_outside",
    "sentence_leaves",
    "span_f1",
    "viterbi",
    "viterbi_trees",
    "with_retries",
    "word_distributions",
    "word_ids",
]

__getattr__, __dir__ = lazy_exports(__name__, MODULE_OF)
