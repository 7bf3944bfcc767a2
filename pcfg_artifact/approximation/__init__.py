"""Inside-Outside with fewer symbols or lower rank, and what is lost by it."""

from typing import TYPE_CHECKING

from pcfg_artifact.lazy import lazy_exports

if TYPE_CHECKING:
    from pcfg_artifact.approximation.algorithm import Approximation
    from pcfg_artifact.approximation.low_rank import LowRank, ProjectedChart, Projections, approximate_charts
    from pcfg_artifact.approximation.merging import choose_classes, merge_symbols
    from pcfg_artifact.approximation.restriction import compact, restrict, select_symbols
    from pcfg_artifact.approximation.scores import (
        Trial,
        one_mask_probabilities,
        parsing_scores,
        prediction_scores,
        unigram_probabilities,
    )
    from pcfg_artifact.approximation.signs import SIGN_RULES, SignRule, rule_named
    from pcfg_artifact.approximation.transforms import STATISTICS, Correlations, Transforms

# Public name -> the module it comes from; a test compares this table with the imports above.
MODULE_OF = {
    "SIGN_RULES": "signs",
    "STATISTICS": "transforms",
    "Approximation": "algorithm",
    "Correlations": "transforms",
    "LowRank": "low_rank",
    "ProjectedChart": "low_rank",
    "Projections": "low_rank",
    "SignRule": "signs",
    "Transforms": "transforms",
    "Trial": "scores",
    "approximate_charts": "low_rank",
    "choose_classes": "merging",
    "compact": "restriction",
    "merge_symbols": "merging",
    "one_mask_probabilities": "scores",
    "parsing_scores": "scores",
    "prediction_scores": "scores",
    "restrict": "restriction",
    "rule_named": "signs",
    "select_symbols": "restriction",
    "unigram_probabilities": "scores",
}

__all__ = ["SIGN_RULES", "STATISTICS", "Approximation", "Correlations", "LowRank", "ProjectedChart", "Projections",
           "SignRule", "Transforms", "Trial", "approximate_charts", "choose_classes", "compact", "merge_symbols",
           "one_mask_probabilities", "parsing_scores", "prediction_scores", "restrict", "rule_named",
           "select_symbols", "unigram_probabilities"]

__getattr__, __dir__ = lazy_exports(__name__, MODULE_OF)
